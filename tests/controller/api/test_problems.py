"""Every error leaves as a problem document that names the failure, the field and who must act."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from contract.problems import PROBLEM_MEDIA_TYPE, Problem
from controller import errors
from controller.api.metrics import ServiceMetrics
from controller.api.middleware import RequestMiddleware
from controller.api.problems import install_problem_handlers, problem_of
from controller.errors import FarmError
from controller.runs.errors import BudgetTooSmallError

pytestmark = pytest.mark.anyio


class Engine(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kv_pool_tokens: int = Field(ge=16)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    engine: Engine
    arms: list[Engine] = []


def _application() -> FastAPI:
    app = FastAPI()
    install_problem_handlers(app)
    app.add_middleware(RequestMiddleware, metrics=ServiceMetrics())

    @app.post("/body")
    def take(body: Body, limit: int = 1) -> None: ...

    @app.get("/gap")
    def gap() -> None:
        raise errors.EventsGapError("control", 7)

    @app.get("/crash")
    def crash() -> None:
        raise RuntimeError("the database password is hunter2")

    return app


async def _send(method: str, path: str, **options: Any) -> tuple[httpx.Response, Problem]:
    transport = httpx.ASGITransport(app=_application())
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        response = await client.request(method, path, **options)
    assert response.headers["content-type"] == PROBLEM_MEDIA_TYPE
    problem = Problem.model_validate(response.json())
    assert problem.status == response.status_code
    return response, problem


@pytest.mark.parametrize(
    ("error", "status", "facts"),
    [
        (errors.EventsGapError("samples", 9), 409, {"next_seq": 9, "stream": "samples", "retryable": True}),
        (errors.EventsMissingError("control", 3), 409, {"next_seq": 3, "stream": "control"}),
        (errors.ArtifactsMissingError(("a.txt",)), 409, {"missing": ["a.txt"]}),
        (errors.FencedError(1, 2), 409, {"fault": "lab"}),
        (errors.LeaseGoneError("lea_x"), 410, {}),
        (errors.AgentOutdatedError("0.1", ("1.0",)), 426, {}),
        (errors.PayloadTooLargeError(5), 413, {}),
        (errors.StoreBusyError(), 503, {"retryable": True, "retry_after_s": 1.0}),
        (errors.RunNotFoundError("run_x"), 404, {"code": "run-not-found"}),
        (BudgetTooSmallError("/engine/kv_pool_tokens", 16, 700), 422, {"code": "budget-too-small"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, FarmError) else "",
)
def test_a_typed_error_carries_its_facts(error: FarmError, status: int, facts: dict[str, Any]) -> None:
    document = problem_of(error, "/here", "trace").model_dump(mode="json")
    assert document["status"] == status
    assert document["instance"] == "/here"
    assert document["trace_id"] == "trace"
    assert facts.items() <= document.items()


def test_a_field_error_names_the_field_in_its_detail_and_by_pointer() -> None:
    problem = problem_of(BudgetTooSmallError("/engine/kv_pool_tokens", 16, 700))
    assert problem.detail.startswith("/engine/kv_pool_tokens: ")
    assert "700" in problem.detail
    assert [error.pointer for error in problem.errors] == ["/engine/kv_pool_tokens"]


async def test_a_typed_error_of_a_route_becomes_its_problem() -> None:
    response, problem = await _send("GET", "/gap")
    assert (problem.code, problem.next_seq, problem.instance) == ("events-gap", 7, "/gap")
    assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"engine": {"kv_pool_tokens": 3}}, ["/engine/kv_pool_tokens"]),
        ({}, ["/engine"]),
        ({"engine": {"kv_pool_tokens": 16, "a/b~c": 1}}, ["/engine/a~1b~0c"]),
        (
            {"engine": {"kv_pool_tokens": 1}, "arms": [{"kv_pool_tokens": 2}]},
            ["/engine/kv_pool_tokens", "/arms/0/kv_pool_tokens"],
        ),
    ],
)
async def test_a_wrong_body_gets_a_json_pointer_for_each_field(body: Any, pointers: list[str]) -> None:
    _, problem = await _send("POST", "/body", json=body)
    assert (problem.status, problem.code) == (422, "validation")
    assert [error.pointer for error in problem.errors] == pointers
    assert problem.detail.startswith(f"{pointers[0]}: ")


async def test_an_unknown_field_is_said_to_be_unknown_not_extra_input() -> None:
    _, problem = await _send("POST", "/body", json={"engine": {"kv_pool_tokens": 16}, "engin": 1})
    assert problem.detail.startswith("/engin: this field is not known")


async def test_a_wrong_query_parameter_is_named_without_a_pointer() -> None:
    body = {"engine": {"kv_pool_tokens": 16}}
    _, problem = await _send("POST", "/body", params={"limit": "many"}, json=body)
    assert problem.detail.startswith("query limit: ")
    assert [error.pointer for error in problem.errors] == [""]


async def test_a_body_that_is_no_json_is_a_problem_too() -> None:
    _, problem = await _send("POST", "/body", content=b"{", headers={"content-type": "application/json"})
    assert (problem.status, problem.code) == (422, "validation")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nowhere", 404, "not-found"), ("DELETE", "/body", 405, "method-not-allowed")],
)
async def test_what_the_framework_refuses_is_a_problem(
    method: str, path: str, status: int, code: str
) -> None:
    _, problem = await _send(method, path)
    assert (problem.status, problem.code) == (status, code)


async def test_a_crash_tells_a_trace_id_and_nothing_of_the_inside() -> None:
    response, problem = await _send("GET", "/crash", headers={"X-Request-Id": "my-request-1"})
    assert (problem.status, problem.fault) == (500, "farm_bug")
    assert problem.trace_id == response.headers["x-request-id"] == "my-request-1"
    assert "my-request-1" in problem.detail
    assert "hunter2" not in response.text
    assert "RuntimeError" not in response.text


@pytest.mark.parametrize(
    ("content", "media_type", "status", "words"),
    [
        (b'{"engine":', "application/json", 422, "body: not JSON at character"),
        (b'{"engine": "\xff"}', "application/json", 400, "UTF-8"),
        (b"[" * 100_000, "application/json", 400, "not nested deeply"),
        (b'{"engine": {"kv_pool_tokens": 16}}', "text/plain", 422, "Content-Type: application/json"),
        (b"[]", "application/json", 422, "a JSON object is needed"),
    ],
    ids=["cut", "not UTF-8", "deep", "text", "a list"],
)
async def test_a_body_that_cannot_be_read_is_told_what_to_send(
    content: bytes, media_type: str, status: int, words: str
) -> None:
    response, problem = await _send("POST", "/body", content=content, headers={"Content-Type": media_type})
    assert response.status_code == status
    assert words in problem.detail
    assert all(error.pointer == "" for error in problem.errors)
