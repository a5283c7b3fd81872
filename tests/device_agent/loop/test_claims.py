"""A claim is asked until its answer is kept, with the same id, also by a later life of the agent."""

import asyncio
from pathlib import Path

import httpx
import pytest

from contract.agent_api import EnrollRequest
from device_agent.client import ControllerClient
from device_agent.floor.settings import AgentSettings
from device_agent.loop.claims import ClaimDesk
from rest.errors import AnswerInvalidError, ControllerUnreachableError
from tests.fakes.attempts import attempt_spec
from tests.fakes.controller import FakeController
from tests.fakes.wire import transport


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    settings = AgentSettings(home=tmp_path)
    (settings.agent_home / "claims").mkdir(parents=True)
    return settings


async def desk_at(controller: FakeController, settings: AgentSettings) -> ClaimDesk:
    client = ControllerClient("http://c", 5, transport=transport(controller))
    controller.enrollment_tokens.add("t")
    client.authorise((await client.enroll("t", EnrollRequest(agent_name="a"))).token)
    return ClaimDesk(client, settings)


def test_a_lost_answer_is_asked_for_again_with_the_same_claim(settings: AgentSettings) -> None:
    controller = FakeController()
    controller.submit(attempt_spec())

    async def run() -> tuple[str, str]:
        first = await desk_at(controller, settings)
        controller.faults = lambda method, path: "lose_answer"
        with pytest.raises(ControllerUnreachableError):
            await first.claim("host", 0.1)
        controller.faults = lambda method, path: ""
        later = await desk_at(controller, settings)
        again, once_more = await later.claim("host", 0.1), await later.claim("host", 0.1)
        assert again is not None
        assert once_more is not None
        return again.lease.lease_id, once_more.lease.lease_id

    lease_ids = set(asyncio.run(run()))
    assert lease_ids == {controller.attempts[next(iter(controller.attempts))].lease.lease_id}
    assert len(controller.claims) == 1


def test_after_no_work_and_after_a_kept_grant_the_next_claim_is_a_new_one(settings: AgentSettings) -> None:
    controller = FakeController()

    async def run() -> None:
        context = await desk_at(controller, settings)
        assert await context.claim("host", 0.05) is None
        controller.submit(attempt_spec())
        assert await context.claim("host", 5) is not None
        context.forget("host")
        assert await context.claim("host", 0.05) is None

    asyncio.run(run())
    assert len(controller.claims) == 3


@pytest.mark.parametrize("answer", [httpx.Response(200, content=b"{}"), httpx.Response(401)])
def test_a_claim_whose_answer_is_useless_is_not_asked_for_ever(
    settings: AgentSettings, answer: httpx.Response
) -> None:
    seen: list[bytes] = []

    def note(request: httpx.Request) -> httpx.Response:
        seen.append(request.content)
        return httpx.Response(answer.status_code, content=answer.content)

    context = ClaimDesk(ControllerClient("http://c", 5, transport=httpx.MockTransport(note)), settings)
    for _ in range(2):
        with pytest.raises(Exception, match=r"."):
            asyncio.run(context.claim("host", 1))
    assert seen[0] != seen[1]


def test_a_lease_for_another_device_is_refused(settings: AgentSettings) -> None:
    controller = FakeController()
    controller.submit(attempt_spec())

    async def run() -> None:
        context = await desk_at(controller, settings)
        controller.faults = lambda method, path: "lose_answer"
        with pytest.raises(ControllerUnreachableError):
            await context.claim("other", 1)
        controller.faults = lambda method, path: ""
        folder = settings.agent_home / "claims"
        (folder / "other.json").rename(folder / "host.json")
        with pytest.raises(AnswerInvalidError, match="a lease for other"):
            await context.claim("host", 1)

    asyncio.run(run())
