"""Deadlines, retries and what a failed call becomes; the network is httpx's own mock transport."""

import json
from collections.abc import Callable

import httpx
import pytest
from pydantic import SecretStr

from client.api import DynofarmClient
from client.connection import Patience, checked_url
from client.errors import (
    ClientError,
    ControllerUnreachableError,
    InconclusiveError,
    InfrastructureError,
    NoCapacityError,
    UnexpectedAnswerError,
    UsageError,
)
from contract.administration import DeviceAction
from contract.health import Health
from contract.states import GateExit

HEALTH = Health(status="ok", version="1", contract_version="1.0", checks={})
QUICK = Patience(give_up_after_s=2.0, first_wait_s=0.001, longest_wait_s=0.002)

Handler = Callable[[httpx.Request], httpx.Response]


def _client(handler: Handler, patience: Patience = QUICK) -> DynofarmClient:
    transport = httpx.MockTransport(handler)
    return DynofarmClient("http://farm.test:8000", SecretStr("secret-token"), patience, transport)


def _problem(status: int, code: str, **more: object) -> httpx.Response:
    body = {
        "type": f"urn:dynofarm:problem:{code}",
        "title": code,
        "status": status,
        "detail": f"the detail of {code}",
        "code": code,
        "fault": "job",
        "retryable": False,
        **more,
    }
    return httpx.Response(
        status, content=json.dumps(body), headers={"content-type": "application/problem+json"}
    )


class Sequence:
    """Answers one after the other; an exception is raised, and the last one stays."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)


def _good() -> httpx.Response:
    return httpx.Response(200, content=HEALTH.model_dump_json())


def test_the_token_travels_as_a_bearer_header() -> None:
    server = Sequence(_good())
    with _client(server) as client:
        assert client.health() == HEALTH
    assert server.asked[0].headers["authorization"] == "Bearer secret-token"


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_passing_refusal_is_tried_again(status: int) -> None:
    server = Sequence(httpx.Response(status), httpx.Response(status), _good())
    with _client(server) as client:
        assert client.health() == HEALTH
    assert len(server.asked) == 3


def test_a_broken_connection_is_tried_again() -> None:
    server = Sequence(httpx.ReadError("cut"), httpx.ConnectTimeout("slow"), _good())
    with _client(server) as client:
        assert client.health() == HEALTH


def test_an_action_that_may_have_been_carried_out_is_not_sent_again() -> None:
    server = Sequence(httpx.ReadError("cut"), _good())
    with _client(server) as client, pytest.raises(ControllerUnreachableError):
        client.quarantine("host-1", "because")
    assert len(server.asked) == 1
    assert DeviceAction.model_validate_json(server.asked[0].content).reason == "because"


def test_an_action_that_never_left_is_sent_again() -> None:
    server = Sequence(httpx.ConnectError("refused"), httpx.Response(404))
    with _client(server) as client, pytest.raises(ClientError):
        client.quarantine("host-1", "because")
    assert len(server.asked) == 2


def test_giving_up_has_a_deadline_and_names_the_address() -> None:
    server = Sequence(httpx.ConnectError("[Errno 111] Connection refused"))
    patience = Patience(give_up_after_s=0.05, first_wait_s=0.001, longest_wait_s=0.01)
    with _client(server, patience) as client, pytest.raises(ControllerUnreachableError) as raised:
        client.health()
    assert raised.value.exit_code is GateExit.INFRASTRUCTURE
    assert "http://farm.test:8000" in raised.value.detail
    assert "dynofarm up" in raised.value.next_step
    assert len(server.asked) > 1


def test_a_long_wish_of_the_server_ends_the_trying_instead_of_the_patience() -> None:
    server = Sequence(httpx.Response(503, headers={"Retry-After": "3600"}))
    with _client(server) as client, pytest.raises(InfrastructureError):
        client.health()
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "not-authenticated", UsageError),
        (403, "forbidden", UsageError),
        (404, "run-not-found", UsageError),
        (409, "not-comparable", UsageError),
        (409, "result-not-ready", InconclusiveError),
        (422, "validation", UsageError),
        (422, "selector-unsatisfiable", NoCapacityError),
        (500, "internal-error", InfrastructureError),
    ],
)
def test_each_problem_has_the_error_of_its_exit_code(status: int, code: str, kind: type[ClientError]) -> None:
    with _client(Sequence(_problem(status, code))) as client, pytest.raises(kind) as raised:
        client.report("run_1")
    assert raised.value.code == code
    assert raised.value.detail == f"the detail of {code}"


def test_wrong_fields_come_with_their_pointers() -> None:
    errors = [{"pointer": "/engine/kv_pool_tokens", "detail": "too small"}]
    with (
        _client(Sequence(_problem(422, "validation", errors=errors))) as client,
        pytest.raises(UsageError) as e,
    ):
        client.runs()
    assert [(each.pointer, each.detail) for each in e.value.errors] == [
        ("/engine/kv_pool_tokens", "too small")
    ]


def test_a_bug_of_the_server_leads_to_its_log() -> None:
    server = Sequence(_problem(500, "internal-error", trace_id="abc123"))
    with _client(server) as client, pytest.raises(InfrastructureError) as raised:
        client.runs()
    assert "abc123" in raised.value.next_step


def test_a_page_of_another_server_is_no_answer() -> None:
    server = Sequence(httpx.Response(404, html="<h1>nginx</h1>"))
    with _client(server) as client, pytest.raises(UnexpectedAnswerError) as raised:
        client.health()
    assert "HTTP 404" in raised.value.detail
    assert "nginx" in raised.value.detail


def test_an_answer_of_another_version_is_told_with_its_field() -> None:
    server = Sequence(httpx.Response(200, content='{"status": "ok", "surprise": 1}'))
    with _client(server) as client, pytest.raises(UnexpectedAnswerError) as raised:
        client.health()
    assert "Health" in raised.value.detail
    assert "same dynofarm version" in raised.value.next_step


@pytest.mark.parametrize(
    "url",
    ["farm", "ftp://farm", "http://", "http://u:p@farm", "http://farm?x=1", "http://[", "http://f:0", ""],
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(UsageError):
        checked_url(url)


@pytest.mark.parametrize("token", ["dyn_\u00e9", "dyn_a\n", "dyn_a b", "\u201cdyn_a\u201d"], ids=ascii)
def test_what_is_no_token_is_refused_before_anything_is_sent_and_not_told(token: str) -> None:
    with pytest.raises(UsageError) as refused:
        DynofarmClient("http://farm.test:8000", SecretStr(token))
    assert refused.value.code == "bad-token"
    assert token not in f"{refused.value} {refused.value.next_step}"


def test_no_error_tells_the_token() -> None:
    failing = [
        httpx.ConnectError("refused"),
        _problem(401, "not-authenticated"),
        httpx.Response(502, text="bad gateway"),
    ]
    for answer in failing:
        with _client(Sequence(answer), Patience(give_up_after_s=0.0)) as client:
            with pytest.raises(ClientError) as raised:
                client.health()
            assert "secret-token" not in f"{raised.value!r} {raised.value.next_step}"


def test_a_name_from_the_command_line_stays_one_segment_of_the_path() -> None:
    server = Sequence(httpx.Response(404))
    with _client(server) as client, pytest.raises(ClientError):
        client.device("../runs?x=1#y")
    assert server.asked[0].url.raw_path == b"/v1/devices/..%2Fruns%3Fx%3D1%23y"
