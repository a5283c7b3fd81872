"""Errors to problem documents (RFC 9457). `code` is the error's own kind: contract/problems.py says what
it means. The title is the code in words.
"""

import uuid
from http import HTTPStatus
from typing import Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from contract.problems import (
    PROBLEM_MEDIA_TYPE,
    PROBLEM_TYPE_PREFIX,
    PROBLEMS,
    FieldProblem,
    Problem,
    ProblemCode,
)
from controller.errors import FarmError

RETRY_AFTER_S: Final = 1.0

# What the framework itself refuses, by its status.
_FRAMEWORK_CODES: Final = {
    HTTPStatus.NOT_FOUND: (
        ProblemCode.NOT_FOUND,
        "there is nothing at this address; see docs for the paths under /v1",
    ),
    HTTPStatus.METHOD_NOT_ALLOWED: (ProblemCode.METHOD_NOT_ALLOWED, "this address does not know the method"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (ProblemCode.PAYLOAD_TOO_LARGE, "the body is too large"),
}
_UNREADABLE: Final = (
    ProblemCode.BAD_REQUEST,
    "the request cannot be read; send JSON in UTF-8 that is not nested deeply",
)

# Where pydantic's own words would not tell a person what to do, by its kind of error.
_ADVICE: Final = {
    "extra_forbidden": "this field is not known; remove it or correct its name",
    "model_attributes_type": "a JSON object is needed here; send it with Content-Type: application/json",
}

_log = structlog.get_logger(__name__)


class ProblemResponse(JSONResponse):
    """A problem document with its media type, and Retry-After where it says when to try again."""

    media_type = PROBLEM_MEDIA_TYPE

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.model_dump(mode="json", exclude_none=True), problem.status)
        if problem.retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, round(problem.retry_after_s)))
        if problem.status == HTTPStatus.UNAUTHORIZED:
            self.headers["WWW-Authenticate"] = "Bearer"


def title_of(code: str) -> str:
    """`events-gap` to `Events gap`."""
    return code.replace("-", " ").capitalize()


def problem_of(error: FarmError, instance: str = "", trace_id: str = "") -> Problem:
    """The document of a typed error, with the facts that it carries."""
    kind = PROBLEMS[error.kind]
    pointer = getattr(error, "pointer", None)
    detail = str(error)
    if pointer:
        detail = f"{pointer}: {detail}"
    return Problem(
        type=PROBLEM_TYPE_PREFIX + error.kind,
        title=title_of(error.kind),
        status=kind.status,
        detail=detail,
        code=error.kind,
        fault=kind.fault,
        retryable=kind.retryable,
        instance=instance,
        retry_after_s=RETRY_AFTER_S if kind.retryable else None,
        errors=[FieldProblem(pointer=pointer, detail=str(error))] if pointer is not None else [],
        next_seq=getattr(error, "next_seq", None),
        stream=getattr(error, "stream", None),
        missing=list(getattr(error, "missing", ())),
        trace_id=trace_id,
    )


def _plain(code: ProblemCode, detail: str, request: Request) -> Problem:
    kind = PROBLEMS[code]
    return Problem(
        type=PROBLEM_TYPE_PREFIX + code,
        title=title_of(code),
        status=kind.status,
        detail=detail,
        code=code,
        fault=kind.fault,
        retryable=kind.retryable,
        instance=request.url.path,
        trace_id=trace_id_of(request),
    )


def trace_id_of(request: Request) -> str:
    """The request's id, given to it by the outermost middleware; a new one where that did not run."""
    return str(getattr(request.state, "trace_id", "") or uuid.uuid4().hex)


def _pointer(location: tuple[int | str, ...]) -> str:
    """A JSON pointer into the body; "" for a header, a path or a query parameter."""
    if location[:1] != ("body",):
        return ""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in location[1:])


def _advice(kind: str, message: str) -> str:
    return _ADVICE.get(kind, message)


def validation_problem(error: RequestValidationError, request: Request) -> Problem:
    """Every wrong field with its JSON pointer; `detail` names the first and says how many more there are."""
    found: list[FieldProblem] = []
    named: list[str] = []
    for entry in error.errors():
        location = tuple(entry["loc"])
        message = _advice(entry["type"], entry["msg"])
        if entry["type"] == "json_invalid":
            # It is placed by the number of a character, which is not a pointer.
            message = f"not JSON at character {location[-1]}: {entry['ctx']['error']}"
            location = ("body",)
        pointer = _pointer(location)
        where = pointer or " ".join(str(part) for part in location)
        named.append(f"{where}: {message}")
        found.append(FieldProblem(pointer=pointer, detail=message if pointer else named[-1]))
    more = f" (and {len(named) - 1} more)" if len(named) > 1 else ""
    detail = f"{named[0]}{more}. Correct it and send the request again."
    problem = _plain(ProblemCode.VALIDATION, detail, request)
    return problem.model_copy(update={"errors": found})


def internal_problem(request: Request) -> Problem:
    """500 without anything of the inside: the log has the rest under the trace id."""
    problem = _plain(ProblemCode.INTERNAL, "", request)
    detail = f"the controller failed; its log says why under trace_id {problem.trace_id}"
    return problem.model_copy(update={"detail": detail})


async def _on_farm_error(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, FarmError)
    problem = problem_of(error, request.url.path, trace_id_of(request))
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.warning("request_failed", code=problem.code, detail=problem.detail)
    return ProblemResponse(problem)


async def _on_validation_error(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)
    return ProblemResponse(validation_problem(error, request))


async def _on_http_exception(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    code, advice = _FRAMEWORK_CODES.get(status, _UNREADABLE)
    response = ProblemResponse(_plain(code, advice, request).model_copy(update={"status": int(status)}))
    response.headers.update(error.headers or {})
    return response


def install_problem_handlers(app: FastAPI) -> None:
    """Every error that a route may raise leaves as a problem document."""
    app.add_exception_handler(FarmError, _on_farm_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
