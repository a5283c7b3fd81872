"""Reading the REST surface: the viewer's cookie and nothing else, deadlines, an error for each failure."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from dashboard.client import FarmClient, FarmReader
from dashboard.errors import DashboardError
from tests.fakes import dashboard_story as story
from tests.fakes.dashboard_rest import SESSION, FakeFarm

RUN = story.identifier("run", 1)
Ask = Callable[[FarmReader], Awaitable[object]]


def _ask(url: str, ask: Ask, session: str | None = SESSION, deadline_s: float = 5.0) -> object:
    async def asked() -> object:
        async with FarmClient(url, deadline_s).reading_as(session) as reader:
            return await ask(reader)

    return asyncio.run(asked())


def test_every_answer_is_parsed_into_its_type(farm: FakeFarm) -> None:
    assert _ask(farm.url, lambda reader: reader.run(RUN)) == farm.runs[0]
    assert _ask(farm.url, lambda reader: reader.live(RUN)) == farm.lives[RUN]
    assert _ask(farm.url, lambda reader: reader.report(RUN)) == farm.reports[RUN]
    assert _ask(farm.url, lambda reader: reader.device("bench-host")) == farm.devices[0]
    assert _ask(farm.url, lambda reader: reader.comparison(RUN, {"baseline": RUN})) == farm.comparison


def test_without_a_session_nothing_is_asked(farm: FakeFarm) -> None:
    with pytest.raises(DashboardError, match="not signed in"):
        _ask(farm.url, lambda reader: reader.runs(), session=None)
    assert farm.calls == []


def test_a_session_that_has_ended_is_said_to_have(farm: FakeFarm) -> None:
    with pytest.raises(DashboardError, match="Sign in"):
        _ask(farm.url, lambda reader: reader.runs(), session="an-old-session")


@pytest.mark.parametrize(
    ("status", "headline", "will_pass"),
    [
        (403, "Your token does not allow this", False),
        (404, "There is no", False),
        (409, "Internal", False),
        (500, "Internal", True),
        (503, "Internal", True),
    ],
)
def test_each_status_has_its_headline(farm: FakeFarm, status: int, headline: str, will_pass: bool) -> None:
    farm.broken_status = status
    with pytest.raises(DashboardError, match=headline) as caught:
        _ask(farm.url, lambda reader: reader.runs())
    assert caught.value.will_pass is will_pass


def test_an_answer_that_the_contract_does_not_know_is_an_error_and_no_guess(farm: FakeFarm) -> None:
    farm.broken_body = b'{"runs": [], "next_page_token": null, "surprise": 1}'
    with pytest.raises(DashboardError, match="same dynofarm version"):
        _ask(farm.url, lambda reader: reader.runs())


def test_a_controller_that_takes_too_long_is_not_waited_for(farm: FakeFarm) -> None:
    farm.delay_s = 1.0
    with pytest.raises(DashboardError, match=r"no answer within 0\.1 s"):
        _ask(farm.url, lambda reader: reader.runs(), deadline_s=0.1)


def test_a_controller_that_is_not_there_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(DashboardError, match="does not answer") as caught:
        _ask(url, lambda reader: reader.runs())
    assert caught.value.will_pass


@pytest.mark.parametrize(
    "given", ["", "..", "run_1", f"{RUN}/../..", f"{RUN}?x=1", "run_" + "a" * 26, "%2e%2e"]
)
def test_a_text_that_is_no_run_id_is_not_put_into_a_path(farm: FakeFarm, given: str) -> None:
    for ask in (FarmReader.run, FarmReader.live, FarmReader.report):
        with pytest.raises(DashboardError, match="There is no"):
            _ask(farm.url, lambda reader, ask=ask: ask(reader, given))
    assert farm.calls == []


def test_a_text_that_is_no_device_id_is_not_put_into_a_path(farm: FakeFarm) -> None:
    with pytest.raises(DashboardError, match="There is no"):
        _ask(farm.url, lambda reader: reader.device("../runs"))
    assert farm.calls == []


def test_reports_that_fail_are_left_out_and_the_others_come(farm: FakeFarm) -> None:
    ids = [story.identifier("run", number) for number in range(1, 8)]
    found = _ask(farm.url, lambda reader: reader.reports(ids))
    assert found == farm.reports
    assert len(farm.calls) == len(ids)


def test_a_proxy_of_the_environment_never_sees_the_session(
    farm: FakeFarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert _ask(farm.url, lambda reader: reader.run(RUN)) == farm.runs[0]
