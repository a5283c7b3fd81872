"""Errors to problem documents (RFC 9457): one table gives each typed error its HTTP status.

`code` is the error's own kind; the title is the code in words. Nothing else in the controller knows HTTP.
"""

import uuid
from http import HTTPStatus
from typing import Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from contract.failures import Fault
from contract.problems import PROBLEM_MEDIA_TYPE, PROBLEM_TYPE_PREFIX, FieldProblem, Problem
from controller import errors
from controller.errors import FarmError
from controller.runs.errors import BudgetTooSmallError, NotComparableError, ResultNotReadyError

STATUS: Final[dict[type[FarmError], int]] = {
    errors.NotAuthenticatedError: HTTPStatus.UNAUTHORIZED,
    errors.ForbiddenError: HTTPStatus.FORBIDDEN,
    errors.HostRefusedError: HTTPStatus.BAD_REQUEST,
    errors.BadRequestError: HTTPStatus.UNPROCESSABLE_ENTITY,
    BudgetTooSmallError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.IdempotencyKeyReusedError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.PayloadTooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.NotFoundError: HTTPStatus.NOT_FOUND,
    errors.SelectorUnsatisfiableError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.InvalidTransitionError: HTTPStatus.CONFLICT,
    errors.LeaseGoneError: HTTPStatus.GONE,
    errors.FencedError: HTTPStatus.CONFLICT,
    errors.AgentOutdatedError: HTTPStatus.UPGRADE_REQUIRED,
    errors.EventsGapError: HTTPStatus.CONFLICT,
    errors.SeqConflictError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.StreamSealedError: HTTPStatus.CONFLICT,
    errors.EventsMissingError: HTTPStatus.CONFLICT,
    errors.ArtifactsMissingError: HTTPStatus.CONFLICT,
    errors.ArtifactConflictError: HTTPStatus.CONFLICT,
    errors.AttemptSealedError: HTTPStatus.CONFLICT,
    errors.TooManyArtifactsError: HTTPStatus.CONFLICT,
    errors.NotReadyError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreBusyError: HTTPStatus.SERVICE_UNAVAILABLE,
    NotComparableError: HTTPStatus.CONFLICT,
    ResultNotReadyError: HTTPStatus.CONFLICT,
}

RETRY_AFTER_S: Final = 1.0

# What the framework itself refuses, by its status.
_FRAMEWORK_CODES: Final = {
    HTTPStatus.BAD_REQUEST: (
        "bad-request",
        "the request cannot be read; send JSON in UTF-8 that is not nested deeply",
    ),
    HTTPStatus.NOT_FOUND: ("not-found", "there is nothing at this address; see docs for the paths under /v1"),
    HTTPStatus.METHOD_NOT_ALLOWED: ("method-not-allowed", "this address does not know the method"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ("payload-too-large", "the body is too large"),
}

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
        """Leaves out what the problem does not say."""
        super().__init__(problem.model_dump(mode="json", exclude_none=True), problem.status)
        if problem.retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, round(problem.retry_after_s)))
        if problem.status == HTTPStatus.UNAUTHORIZED:
            self.headers["WWW-Authenticate"] = "Bearer"


def status_of(error: FarmError) -> int:
    """The status of the nearest class of the error that the table names; 500 when it names none."""
    found = (STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return next(found, int(HTTPStatus.INTERNAL_SERVER_ERROR))


def title_of(code: str) -> str:
    """`events-gap` to `Events gap`."""
    return code.replace("-", " ").capitalize()


def problem_of(error: FarmError, instance: str = "", trace_id: str = "") -> Problem:
    """The document of a typed error, with the facts that it carries."""
    pointer = getattr(error, "pointer", None)
    detail = str(error)
    if pointer:
        detail = f"{pointer}: {detail}"
    return Problem(
        type=PROBLEM_TYPE_PREFIX + error.kind,
        title=title_of(error.kind),
        status=status_of(error),
        detail=detail,
        code=error.kind,
        fault=error.fault,
        retryable=error.retryable,
        instance=instance,
        retry_after_s=RETRY_AFTER_S if error.retryable else None,
        errors=[FieldProblem(pointer=pointer, detail=str(error))] if pointer is not None else [],
        next_seq=getattr(error, "next_seq", None),
        stream=getattr(error, "stream", None),
        missing=list(getattr(error, "missing", ())),
        trace_id=trace_id,
    )


def _plain(status: int, code: str, detail: str, request: Request) -> Problem:
    return Problem(
        type=PROBLEM_TYPE_PREFIX + code,
        title=title_of(code),
        status=status,
        detail=detail,
        code=code,
        fault=Fault.JOB if status < HTTPStatus.INTERNAL_SERVER_ERROR else Fault.FARM_BUG,
        retryable=False,
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
            # It is placed by the number of a character, which is no pointer.
            message = f"not JSON at character {location[-1]}: {entry['ctx']['error']}"
            location = ("body",)
        pointer = _pointer(location)
        where = pointer or " ".join(str(part) for part in location)
        named.append(f"{where}: {message}")
        found.append(FieldProblem(pointer=pointer, detail=message if pointer else named[-1]))
    more = f" (and {len(named) - 1} more)" if len(named) > 1 else ""
    detail = f"{named[0]}{more}. Correct it and send the request again."
    problem = _plain(HTTPStatus.UNPROCESSABLE_ENTITY, "validation", detail, request)
    return problem.model_copy(update={"errors": found})


def internal_problem(request: Request) -> Problem:
    """500 without anything of the inside: the log has the rest under the trace id."""
    problem = _plain(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "", request)
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
    code, advice = _FRAMEWORK_CODES.get(status, (status.phrase.lower().replace(" ", "-"), status.phrase))
    response = ProblemResponse(_plain(status, code, advice, request))
    response.headers.update(error.headers or {})
    return response


def install_problem_handlers(app: FastAPI) -> None:
    """Every error that a route may raise leaves as a problem document."""
    app.add_exception_handler(FarmError, _on_farm_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
