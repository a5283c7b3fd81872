"""Calls over the wire: every refusal, every broken answer, every silence has its own error."""

import asyncio
import time
from collections.abc import Callable

import httpx
import pytest

from contract.agent_api import ClaimRequest, EnrollRequest, ResultRequest
from contract.events.envelope import Stream
from contract.failures import Fault
from contract.problems import PROBLEM_MEDIA_TYPE, Problem
from device_agent.client import ControllerClient
from rest.errors import (
    AnswerInvalidError,
    ControllerFailedError,
    ControllerUnreachableError,
    DeviceAgentOutdatedError,
    EventsGapError,
    EventsMissingError,
    FencedError,
    LeaseGoneError,
    NotFoundError,
    PayloadTooLargeError,
    RefusedError,
    SeqConflictError,
    TokenRefusedError,
    UndecidedError,
)
from tests.fakes.controller import FakeController
from tests.fakes.wire import served, transport

ATTEMPT = "att_01ARZ3NDEKTSV4RRFFQ69G5FAV"
RESULT = ResultRequest(fence=1, outcome="succeeded", last_seq={})
CLAIM = ClaimRequest(claim_id="clm_01ARZ3NDEKTSV4RRFFQ69G5FAV", devices=["host"], wait_s=0)


def client_of(answer: Callable[[httpx.Request], httpx.Response], timeout_s: float = 5.0) -> ControllerClient:
    return ControllerClient("http://controller", timeout_s, transport=httpx.MockTransport(answer))


def answered(status: int, content: bytes = b"", **headers: str) -> ControllerClient:
    return client_of(lambda request: httpx.Response(status, content=content, headers=headers))


def problem(status: int, code: str, **fields: object) -> bytes:
    whole = Problem.model_validate(
        {
            "type": "t",
            "title": "t",
            "status": status,
            "detail": "d",
            "code": code,
            "fault": Fault.LAB,
            "retryable": False,
            **fields,
        }
    )
    return whole.model_dump_json().encode()


def finish(client: ControllerClient) -> None:
    asyncio.run(client.finish(ATTEMPT, RESULT))


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (409, "events-gap", EventsGapError),
        (409, "events-missing", EventsMissingError),
        (422, "seq-conflict", SeqConflictError),
        (409, "fenced", FencedError),
        (410, "lease-gone", LeaseGoneError),
        (426, "device-agent-outdated", DeviceAgentOutdatedError),
        (413, "payload-too-large", PayloadTooLargeError),
        (401, "not-authenticated", TokenRefusedError),
        (403, "forbidden", TokenRefusedError),
        (404, "attempt-not-found", NotFoundError),
        (422, "validation", RefusedError),
        (503, "not-ready", ControllerFailedError),
        (500, "farm-bug", ControllerFailedError),
        (429, "too-many", ControllerFailedError),
    ],
)
def test_a_problem_document_becomes_its_own_error(status: int, code: str, error: type[Exception]) -> None:
    body = problem(status, code, next_seq=7, stream="samples")
    with pytest.raises(error) as raised:
        finish(answered(status, body, **{"Content-Type": PROBLEM_MEDIA_TYPE}))
    assert type(raised.value) is error
    if isinstance(raised.value, EventsGapError | EventsMissingError):
        assert raised.value.next_seq == 7
    if isinstance(raised.value, EventsMissingError):
        assert raised.value.stream is Stream.SAMPLES


@pytest.mark.parametrize("status", [404, 405, 400, 502, 302])
def test_something_that_is_not_the_controller_is_no_refusal(status: int) -> None:
    """A proxy's page or another server on the port must never end an attempt."""
    with pytest.raises(UndecidedError) as raised:
        finish(answered(status, b"<html>"))
    assert not isinstance(raised.value, AnswerInvalidError)


def test_a_proxy_that_takes_no_large_body_is_understood() -> None:
    with pytest.raises(PayloadTooLargeError):
        finish(answered(413, b"<html>"))


def test_the_server_says_when_to_come_back() -> None:
    with pytest.raises(ControllerUnreachableError) as by_header:
        finish(answered(503, b"", **{"Retry-After": "7"}))
    with pytest.raises(ControllerFailedError) as by_problem:
        finish(answered(503, problem(503, "x", retry_after_s=2.5)))
    assert (by_header.value.retry_after_s, by_problem.value.retry_after_s) == (7.0, 2.5)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"no json", b'{"attempt_id": "x", "state": "y"}'])
def test_an_answer_that_breaks_the_contract_is_an_error_of_its_own(body: bytes) -> None:
    with pytest.raises(AnswerInvalidError):
        finish(answered(200, body))


def test_no_content_is_no_work() -> None:
    assert asyncio.run(answered(204).claim(CLAIM)) is None


def test_a_controller_that_hangs_runs_into_the_deadline() -> None:
    async def hang(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        raise AssertionError

    client = ControllerClient("http://controller", 0.1, transport=httpx.MockTransport(hang))
    started_s = time.monotonic()
    with pytest.raises(ControllerUnreachableError):
        finish(client)
    assert time.monotonic() - started_s < 30


def test_nobody_listening_is_unreachable() -> None:
    with pytest.raises(ControllerUnreachableError):
        finish(ControllerClient("http://127.0.0.1:9", 5))


def test_an_answer_cut_short_is_unreachable() -> None:
    controller = FakeController()
    controller.faults = lambda method, path: "lose_answer"

    async def call(url: str) -> None:
        client = ControllerClient(url, 5)
        try:
            await client.finish(ATTEMPT, RESULT)
        finally:
            await client.close()

    with served(controller) as url, pytest.raises(ControllerUnreachableError):
        asyncio.run(call(url))


def test_a_token_travels_as_bearer_and_the_enrolment_token_only_to_enroll() -> None:
    seen: list[tuple[str, str]] = []

    def note(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.path, request.headers["Authorization"]))
        return httpx.Response(503)

    client = client_of(note)
    client.authorise("own")
    for call in (client.finish(ATTEMPT, RESULT), client.enroll("once", EnrollRequest(agent_name="a"))):
        with pytest.raises(ControllerUnreachableError):
            asyncio.run(call)
    assert seen == [
        (f"/device-agent/attempts/{ATTEMPT}/result", "Bearer own"),
        ("/device-agent/enroll", "Bearer once"),
    ]


def test_a_redirect_is_not_followed_with_the_token() -> None:
    asked: list[str] = []

    def away(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(307, headers={"Location": "http://elsewhere/"})

    with pytest.raises(UndecidedError):
        finish(client_of(away))
    assert asked == ["controller"]


def test_the_fake_controller_speaks_through_the_same_client() -> None:
    controller = FakeController()

    async def enrol() -> str:
        client = ControllerClient("http://controller", 5, transport=transport(controller))
        return (await client.enroll("one-time", EnrollRequest(agent_name="a"))).token

    assert asyncio.run(enrol()) in controller.tokens
