"""Answers that are no success become typed errors: one table from problem codes to errors."""

import httpx
from pydantic import ValidationError

from contract.events.envelope import Stream
from contract.problems import Problem
from device_agent.floor.errors import (
    AgentError,
    AgentOutdatedError,
    ArtifactsMissingError,
    ControllerUnreachableError,
    EventsGapError,
    EventsMissingError,
    FencedError,
    LeaseGoneError,
    PayloadTooLargeError,
    RefusedError,
    SeqConflictError,
    TokenRefusedError,
)

BY_CODE: dict[str, type[RefusedError]] = {
    error.kind: error
    for error in (
        EventsGapError,
        EventsMissingError,
        ArtifactsMissingError,
        SeqConflictError,
        FencedError,
        LeaseGoneError,
        PayloadTooLargeError,
        AgentOutdatedError,
    )
}
# Statuses with which a server or a proxy says "not now"; the same request may succeed later.
_NOT_NOW = frozenset({408, 425, 429, 500, 502, 503, 504})


def error_of(response: httpx.Response) -> AgentError:
    """The typed error of an answer with status >= 300.

    Only a problem document can refuse for good: any other body comes from a proxy, or from something
    that is not the controller, and the true controller may answer the next time.
    """
    status = response.status_code
    problem = _problem(response)
    if status in (401, 403):
        code = problem.code if problem else f"http-{status}"
        return TokenRefusedError(code, status, problem.detail if problem else "no reason was given")
    if problem is None and status == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
        return PayloadTooLargeError(PayloadTooLargeError.kind, status, "a proxy takes no larger body")
    if problem is None or status in _NOT_NOW:
        detail = problem.detail if problem else f"HTTP {status} without a problem document"
        return ControllerUnreachableError(detail, _retry_after_s(response, problem))
    error = BY_CODE.get(problem.code, RefusedError)(problem.code, status, problem.detail)
    if isinstance(error, EventsGapError | EventsMissingError):
        error.next_seq = problem.next_seq or 1
    if isinstance(error, EventsMissingError) and problem.stream in set(Stream):
        error.stream = Stream(problem.stream)
    return error


def _problem(response: httpx.Response) -> Problem | None:
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        return None


def _retry_after_s(response: httpx.Response, problem: Problem | None) -> float | None:
    if problem is not None and problem.retry_after_s is not None:
        return problem.retry_after_s
    header = response.headers.get("Retry-After", "")
    return float(header) if header.isdigit() else None
