"""Deadlines, tries and what a failed call becomes; the network is httpx's own mock transport."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from contract import routes
from contract.administration import DeviceAction
from contract.health import Health
from contract.problems import ProblemCode
from contract.queries import ComparisonQuery
from contract.rest import RunRequest, WorkloadRequest
from rest import errors
from rest.answers import MAX_ANSWER_BYTES
from rest.transport import Ask, AsyncTransport, Caller, Transport
from rest.tries import Patience
from tests.fakes.scripted_wire import ScriptedWire, problem

HEALTH = Health(status="ok", version="1", contract_version="1.0", checks={})
GOOD = httpx.Response(200, content=HEALTH.model_dump_json())
QUICK = Patience(give_up_after_s=2.0, first_wait_s=0.001, longest_wait_s=0.002)
URL = "http://farm.test:8000"
ACTION = Ask(routes.QUARANTINE_DEVICE, {"device_id": "host-1"}, DeviceAction(reason="because"))
SUBMIT = Ask(routes.SUBMIT_RUN, body=RunRequest(workload=WorkloadRequest(name="shared-prefix"), model="tiny"))


@contextmanager
def asking(wire: Any, patience: Patience = QUICK, **caller: Any) -> Iterator[Transport]:
    transport = httpx.MockTransport(wire)
    with Transport(URL, Caller(patience, **caller), transport) as opened:
        opened.authorise(SecretStr("secret-token"))
        yield opened


def wire_of(*answers: httpx.Response | Exception) -> ScriptedWire:
    return ScriptedWire(list(answers))


def test_the_token_travels_as_a_bearer_header() -> None:
    wire = wire_of(GOOD)
    with asking(wire) as rest:
        assert rest.ask(Ask(routes.HEALTH)) == HEALTH
    assert wire.asked[0].headers["authorization"] == "Bearer secret-token"


@pytest.mark.parametrize("status", [408, 425, 429, 502, 503, 504])
def test_a_passing_refusal_is_tried_again(status: int) -> None:
    wire = wire_of(httpx.Response(status), httpx.Response(status), GOOD)
    with asking(wire) as rest:
        assert rest.ask(Ask(routes.HEALTH)) == HEALTH
    assert len(wire.asked) == 3


def test_a_broken_connection_is_tried_again() -> None:
    with asking(wire_of(httpx.ReadError("cut"), httpx.ConnectTimeout("slow"), GOOD)) as rest:
        assert rest.ask(Ask(routes.HEALTH)) == HEALTH


def test_a_lost_answer_of_a_keyed_route_is_asked_for_again_with_the_same_key() -> None:
    wire = wire_of(httpx.ReadError("cut"), httpx.ReadError("cut"), problem(ProblemCode.VALIDATION))
    with asking(wire) as rest, pytest.raises(errors.RefusedError):
        rest.ask(SUBMIT)
    assert len({request.headers["idempotency-key"] for request in wire.asked}) == 1
    assert len(wire.asked) == 3


def test_an_action_that_may_have_been_carried_out_is_not_sent_again() -> None:
    for failure in (httpx.ReadError("cut"), httpx.Response(503), problem(ProblemCode.STORE_BUSY)):
        wire = wire_of(failure, GOOD)
        with asking(wire) as rest, pytest.raises(errors.UnavailableError):
            rest.ask(ACTION)
        assert len(wire.asked) == 1
        assert DeviceAction.model_validate_json(wire.asked[0].content).reason == "because"


def test_an_action_that_never_left_is_sent_again() -> None:
    wire = wire_of(httpx.ConnectError("refused"), problem(ProblemCode.DEVICE_NOT_FOUND))
    with asking(wire) as rest, pytest.raises(errors.NotFoundError):
        rest.ask(ACTION)
    assert len(wire.asked) == 2


def test_giving_up_has_a_deadline_and_names_the_address() -> None:
    wire = wire_of(httpx.ConnectError("[Errno 111] Connection refused"))
    patience = Patience(give_up_after_s=0.05, first_wait_s=0.001, longest_wait_s=0.01)
    with asking(wire, patience) as rest, pytest.raises(errors.ControllerUnreachableError, match=URL):
        rest.ask(Ask(routes.HEALTH))
    assert len(wire.asked) > 1


def test_a_long_wish_of_the_server_ends_the_trying_instead_of_the_patience() -> None:
    wire = wire_of(httpx.Response(503, headers={"Retry-After": "3600"}))
    with asking(wire) as rest, pytest.raises(errors.UnavailableError) as raised:
        rest.ask(Ask(routes.HEALTH))
    assert raised.value.retry_after_s == 3600
    assert len(wire.asked) == 1


def test_who_waits_is_told_why_and_for_how_long() -> None:
    told: list[tuple[str, float]] = []
    wire = wire_of(problem(ProblemCode.STORE_BUSY, retry_after_s=0.01), GOOD)
    with asking(wire, on_wait=lambda error, wait_s: told.append((error.code, wait_s))) as rest:
        rest.ask(Ask(routes.HEALTH))
    assert [(code, wait_s >= 0.01) for code, wait_s in told] == [("store-busy", True)]


def test_a_deadline_holds_for_the_whole_answer_and_not_for_each_of_its_parts() -> None:
    class Dripping(httpx.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while True:
                await asyncio.sleep(0.01)
                yield b" "

    patience = Patience(call_s=0.1, give_up_after_s=0.0)
    with (
        asking(lambda request: httpx.Response(200, stream=Dripping()), patience) as rest,
        pytest.raises(errors.ControllerUnreachableError, match=r"no answer within 0\.1 s"),
    ):
        rest.ask(Ask(routes.HEALTH))


def test_an_answer_without_end_is_cut_at_its_limit() -> None:
    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while True:
                yield bytes(8 << 20)

    with (
        asking(lambda request: httpx.Response(200, stream=Endless())) as rest,
        pytest.raises(errors.UnexpectedAnswerError, match=f"more than {MAX_ANSWER_BYTES >> 20} MiB"),
    ):
        rest.ask(Ask(routes.HEALTH))


def test_a_page_of_another_server_is_no_answer() -> None:
    wire = wire_of(httpx.Response(404, html="<h1>nginx</h1>"))
    with asking(wire) as rest, pytest.raises(errors.UnexpectedAnswerError, match=r"HTTP 404.*nginx"):
        rest.ask(Ask(routes.HEALTH))


def test_a_redirect_is_not_followed_but_told() -> None:
    wire = wire_of(httpx.Response(301, headers={"Location": "https://farm.test/"}))
    with asking(wire) as rest, pytest.raises(errors.UnexpectedAnswerError, match=r"https://farm\.test/"):
        rest.ask(Ask(routes.HEALTH))
    assert len(wire.asked) == 1


def test_an_answer_of_another_version_is_told_with_its_field() -> None:
    wire = wire_of(httpx.Response(200, content='{"status": "ok", "surprise": 1}'))
    with asking(wire) as rest, pytest.raises(errors.UnexpectedAnswerError, match=r"Health.*version"):
        rest.ask(Ask(routes.HEALTH))


def test_what_a_server_wrote_cannot_steer_a_terminal() -> None:
    for answer in (
        problem(ProblemCode.INTERNAL, detail="\x1b[2Jgone", trace_id="\x9b31m"),
        httpx.Response(404, text="\x1b]0;title\x07"),
        httpx.Response(302, headers={"Location": "/\x1b[2J"}),
    ):
        with asking(wire_of(answer)) as rest, pytest.raises(errors.RestError) as raised:
            rest.ask(Ask(routes.HEALTH))
        assert (raised.value.detail + raised.value.trace_id).isprintable()


def test_no_error_tells_the_token() -> None:
    once = Patience(give_up_after_s=0.0)
    for failing in (
        httpx.ConnectError("refused"),
        problem(ProblemCode.NOT_AUTHENTICATED),
        httpx.Response(502, text="bad gateway"),
    ):
        with asking(wire_of(failing), once) as rest, pytest.raises(errors.RestError) as raised:
            rest.ask(Ask(routes.HEALTH))
        assert "secret-token" not in repr(raised.value)


def test_a_name_from_the_command_line_stays_one_segment_of_the_path() -> None:
    wire = wire_of(problem(ProblemCode.DEVICE_NOT_FOUND))
    with asking(wire) as rest:
        for typed in ("../runs?x=1#y", ".."):
            with pytest.raises(errors.NotFoundError):
                rest.ask(Ask(routes.GET_DEVICE, {"device_id": typed}))
        with pytest.raises(errors.SettingError, match="device_id is empty"):
            rest.ask(Ask(routes.GET_DEVICE, {"device_id": ""}))
    raw = [request.url.raw_path for request in wire.asked]
    assert raw == [b"/v1/devices/..%2Fruns%3Fx%3D1%23y", b"/v1/devices/%2E%2E"]


def test_a_query_travels_without_what_was_not_chosen() -> None:
    wire = wire_of(problem(ProblemCode.NOT_COMPARABLE))
    query = ComparisonQuery(baseline="run_01J00000000000000000000000", force=True)
    with asking(wire) as rest, pytest.raises(errors.NotComparableError) as raised:
        rest.ask(Ask(routes.GET_COMPARISON, {"run_id": "r"}, query=query))
    assert dict(wire.asked[0].url.params) == {"baseline": query.baseline, "arm": "paged", "force": "true"}
    assert not raised.value.retryable


@pytest.mark.parametrize(
    ("base", "asked"),
    [
        ("http://farm.test:8000/", "http://farm.test:8000/health"),
        ("http://[::1]:8000", "http://[::1]:8000/health"),
        ("https://[2001:db8::7]", "https://[2001:db8::7]/health"),
        ("https://example.test/lab/dynofarm/", "https://example.test/lab/dynofarm/health"),
        ("http://FARM.test", "http://farm.test/health"),
    ],
)
def test_an_address_keeps_its_host_and_path(base: str, asked: str) -> None:
    wire = wire_of(GOOD)
    with Transport(base, transport=httpx.MockTransport(wire)) as rest:
        rest.ask(Ask(routes.HEALTH))
    assert str(wire.asked[0].url) == asked


@pytest.mark.parametrize(
    "url",
    [
        *("farm", "ftp://farm", "http://", "http://u:p@farm", "http://farm?x=1", "http://[", "http://f:0"),
        *("", "http://f:99999", "http://::1:8000", "http://f\x1b"),
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(errors.SettingError) as refused:
        Transport(url)
    assert refused.value.code == "bad-address"


@pytest.mark.parametrize("token", ["dyn_\u00e9", "dyn_a\n", "dyn_a b", "\u201cdyn_a\u201d"], ids=ascii)
def test_what_is_no_token_is_refused_before_anything_is_sent_and_not_told(token: str) -> None:
    with Transport(URL) as rest, pytest.raises(errors.SettingError) as refused:
        rest.authorise(SecretStr(token))
    assert refused.value.code == "bad-token"
    assert token not in str(refused.value)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ProblemCode.NOT_AUTHENTICATED, errors.TokenRefusedError),
        (ProblemCode.FORBIDDEN, errors.TokenRefusedError),
        (ProblemCode.RUN_NOT_FOUND, errors.NotFoundError),
        (ProblemCode.LEASE_GONE, errors.LeaseGoneError),
        (ProblemCode.FENCED, errors.FencedError),
        (ProblemCode.SEQ_CONFLICT, errors.SeqConflictError),
        (ProblemCode.DEVICE_AGENT_OUTDATED, errors.DeviceAgentOutdatedError),
        (ProblemCode.STREAM_SEALED, errors.RefusedError),
        (ProblemCode.INTERNAL, errors.ControllerFailedError),
    ],
)
def test_a_code_has_its_error_with_the_facts_of_the_table(
    code: ProblemCode, kind: type[errors.RestError]
) -> None:
    with asking(wire_of(problem(code))) as rest, pytest.raises(kind) as raised:
        rest.ask(Ask(routes.HEALTH))
    assert type(raised.value) is kind
    assert (raised.value.code, raised.value.detail) == (code, f"the detail of {code}")


def test_a_gap_says_where_to_go_on() -> None:
    wire = wire_of(problem(ProblemCode.EVENTS_GAP, next_seq=7))
    with asking(wire) as rest, pytest.raises(errors.EventsGapError) as gap:
        rest.ask(Ask(routes.POST_EVENTS, {"attempt_id": "a"}, b"x"))
    assert gap.value.next_seq == 7
    assert wire.asked[0].headers["content-encoding"] == "gzip"
    missing = wire_of(problem(ProblemCode.EVENTS_MISSING, next_seq=3, stream="a stream of tomorrow"))
    with asking(missing) as rest, pytest.raises(errors.EventsMissingError) as lacks:
        rest.ask(Ask(routes.HEALTH))
    assert (lacks.value.next_seq, lacks.value.stream) == (3, None)


def test_many_calls_share_a_loop_and_nothing_for_an_empty_answer() -> None:
    async def claims(rest: AsyncTransport) -> list[Any]:
        asks: list[Awaitable[Any]] = [rest.call(routes.CLAIM) for _ in range(3)]
        try:
            return await asyncio.gather(*asks)
        finally:
            await rest.close()

    wire = wire_of(httpx.Response(204))
    assert asyncio.run(claims(AsyncTransport(URL, transport=httpx.MockTransport(wire)))) == [None] * 3
