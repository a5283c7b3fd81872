"""One attempt's way to the controller, over a wire that loses, cuts and forgets."""

import asyncio
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.agent_api import ClaimRequest, EnrollRequest, ResultRequest
from contract.events.envelope import Stream
from contract.jobs import AttemptSpec
from device_agent.attempt.artifacts import keep_artifacts
from device_agent.attempt.delivery import Delivery
from device_agent.attempt.resumption import open_spool
from device_agent.client import ControllerClient
from device_agent.collect.spool import Arrivals, Spool
from device_agent.floor.attempt_folder import AttemptFolder, Grant
from device_agent.floor.settings import AgentSettings
from tests.fakes.attempts import attempt_spec
from tests.fakes.controller import FakeController, Fault_
from tests.fakes.lines import ATTEMPT_ID, arrived
from tests.fakes.wire import transport

C, S = Stream.CONTROL, Stream.SAMPLES
CLAIM_ID = "clm_01ARZ3NDEKTSV4RRFFQ69G5FAV"


class World:
    """A controller, a client that enrolled, and one granted attempt with its folder and spool."""

    def __init__(self, path: Path) -> None:
        self.controller = FakeController(ttl_s=1000)
        self.settings = AgentSettings(
            home=path, upload_interval_s=0.002, retry_first_s=0.001, retry_cap_s=0.01, call_timeout_s=5
        )
        self.spec: AttemptSpec = attempt_spec(attempt_id=ATTEMPT_ID)
        self.path = path
        self.client = ControllerClient("http://c", 5, transport=transport(self.controller))

    async def grant(self) -> tuple[AttemptFolder, Spool]:
        self.client.authorise((await self.client.enroll("one-time", EnrollRequest(agent_name="a"))).token)
        self.controller.submit(self.spec)
        lease = await self.client.claim(ClaimRequest(claim_id=CLAIM_ID, devices=["host"], wait_s=5))
        assert lease is not None
        folder = AttemptFolder.create(self.path, Grant(claim_id=CLAIM_ID, lease=lease))
        return folder, open_spool(folder, self.settings)

    def conclude(self, folder: AttemptFolder, spool: Spool) -> None:
        kept = keep_artifacts(folder).refs
        folder.write_result(
            ResultRequest(fence=1, outcome="succeeded", last_seq=spool.last_seqs(), artifacts=list(kept))
        )

    def stored(self, stream: Stream) -> list[int]:
        return [event.seq for event in self.controller.attempts[ATTEMPT_ID].events(stream)]


async def deliver(world: World, faults: Callable[[str, str], Fault_] | None = None) -> Delivery:
    """A concluded attempt with events in two streams, brought home."""
    folder, spool = await world.grant()
    folder.log_path.write_bytes(b"the log")
    spool.take(Arrivals({C: arrived(C, *range(1, 41)), S: arrived(S, *range(1, 21))}))
    world.conclude(folder, spool)
    if faults is not None:
        world.controller.faults = faults
    delivery = Delivery(folder, spool, world.client, world.settings)
    async with asyncio.timeout(20):
        await delivery.run()
    return delivery


def test_events_come_before_the_result_and_the_folder_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    delivery = asyncio.run(deliver(world))
    assert (world.stored(C), world.stored(S)) == (list(range(1, 41)), list(range(1, 21)))
    settlement = delivery.folder.settlement()
    assert settlement is not None
    assert settlement.state == "succeeded"
    assert delivery.settled


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([0.2, 0.5, 0.7]))
def test_any_pattern_of_losses_delivers_each_event_once(seed: int, loss: float) -> None:
    draw = random.Random(seed)

    def faults(method: str, path: str) -> Fault_:
        if draw.random() >= loss:
            return ""
        return draw.choice(["lose_request", "lose_answer", "unavailable"])

    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        asyncio.run(deliver(world, faults))
        assert (world.stored(C), world.stored(S)) == (list(range(1, 41)), list(range(1, 21)))
        assert world.controller.attempts[ATTEMPT_ID].artifacts == {"runtime.log": b"the log"}


def test_files_come_before_the_result_that_names_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    asyncio.run(deliver(world))
    attempt = world.controller.attempts[ATTEMPT_ID]
    assert attempt.artifacts == {"runtime.log": b"the log"}
    assert attempt.result is not None
    assert [ref.name for ref in attempt.result.artifacts] == ["runtime.log"]


def test_a_file_that_the_controller_refuses_does_not_hold_the_result_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.controller.refused_artifacts = {"runtime.log"}
    asyncio.run(deliver(world))
    result = world.controller.attempts[ATTEMPT_ID].result
    assert result is not None
    assert result.artifacts == []


def test_a_server_that_forgot_a_file_gets_it_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    forgotten: list[str] = []

    def faults(method: str, path: str) -> Fault_:
        if path.endswith("/result") and not forgotten:
            forgotten.append(path)
            world.controller.attempts[ATTEMPT_ID].artifacts.clear()
        return ""

    asyncio.run(deliver(world, faults))
    assert forgotten
    assert world.controller.attempts[ATTEMPT_ID].artifacts == {"runtime.log": b"the log"}


def test_a_server_that_forgot_acknowledged_events_gets_them_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    forgotten: list[str] = []

    def faults(method: str, path: str) -> Fault_:
        if method == "PUT" and not forgotten:
            forgotten.append(path)
            attempt = world.controller.attempts[ATTEMPT_ID]
            del attempt.streams[C][7:], attempt.streams[S][:]
        return ""

    asyncio.run(deliver(world, faults))
    assert forgotten
    assert (world.stored(C), world.stored(S)) == (list(range(1, 41)), list(range(1, 21)))


def test_an_attempt_that_the_controller_does_not_know_is_given_up_and_kept(tmp_path: Path) -> None:
    world = World(tmp_path)

    def forget(method: str, path: str) -> Fault_:
        world.controller.attempts.clear()
        return ""

    delivery = asyncio.run(deliver(world, forget))
    settlement = delivery.folder.settlement()
    assert settlement is not None
    assert settlement.state == "refused:attempt-not-found"
    assert delivery.folder.spool_path.exists()


def test_other_events_under_the_same_number_are_given_up(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def run() -> Delivery:
        folder, spool = await world.grant()
        spool.take(Arrivals({C: arrived(C, 1, 2, 3)}))
        another = [arrived(C, 1)[0].line, arrived(C, 3)[0].line]
        world.controller.attempts[ATTEMPT_ID].streams[C] = another
        world.conclude(folder, spool)
        delivery = Delivery(folder, spool, world.client, world.settings)
        async with asyncio.timeout(20):
            await delivery.run()
        return delivery

    settlement = asyncio.run(run()).folder.settlement()
    assert settlement is not None
    assert settlement.state == "refused:seq-conflict"


def test_a_refused_token_is_waited_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    tokens: set[str] = set()

    def revoke_once(method: str, path: str) -> Fault_:
        if not tokens:
            tokens.update(world.controller.tokens)
            world.controller.tokens.clear()
        else:
            world.controller.tokens.update(tokens)
        return ""

    asyncio.run(deliver(world, revoke_once))
    assert world.stored(C) == list(range(1, 41))


def test_a_directive_of_an_upload_is_heard(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.controller.cancel.add(ATTEMPT_ID)
    assert asyncio.run(deliver(world)).cancelled


def test_a_smaller_limit_of_the_server_makes_smaller_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fakes.controller.MAX_BATCH_BYTES", 3000)
    world = World(tmp_path)
    asyncio.run(deliver(world))
    assert world.stored(C) == list(range(1, 41))
    assert len([path for method, path in world.controller.requests if path.endswith("/events")]) > 4


def test_a_settled_delivery_sends_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def twice() -> int:
        first = await deliver(world)
        before = len(world.controller.requests)
        await Delivery(
            first.folder, open_spool(first.folder, world.settings), world.client, world.settings
        ).run()
        return len(world.controller.requests) - before

    assert asyncio.run(twice()) == 0
