"""Problem documents (RFC 9457) to the client's typed errors: which exit code, and what to do next."""

from http import HTTPStatus
from types import MappingProxyType
from typing import Final

import httpx
from pydantic import ValidationError

from client.errors import (
    ClientError,
    InconclusiveError,
    InfrastructureError,
    NoCapacityError,
    UnexpectedAnswerError,
    UsageError,
)
from contract.problems import Problem

_EXCEPTIONAL_CODES: Final = MappingProxyType(
    {"result-not-ready": InconclusiveError, "selector-unsatisfiable": NoCapacityError}
)
_NEXT_STEPS: Final = MappingProxyType(
    {
        "not-authenticated": "set DYNOFARM_TOKEN to a valid token, or --home to the farm of this machine",
        "forbidden": "ask an admin of the farm for a token with a larger scope",
        "run-not-found": "`dynofarm runs` lists the runs",
        "device-not-found": "`dynofarm devices list` lists the devices",
        "workload-not-found": "`dynofarm workloads list` lists the workloads",
        "selector-unsatisfiable": "`dynofarm devices list` shows the devices and the models that they have",
        "not-comparable": "compare other runs, or add --force to see the figures side by side",
        "result-not-ready": "`dynofarm watch RUN` follows the run to its end",
        "idempotency-key-reused": "leave --idempotency-key out, or choose a new one",
    }
)
_UNREADABLE_CHARACTERS: Final = 200
# A 4xx that says "not now" rather than "not so".
_PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


def error_of(response: httpx.Response) -> ClientError:
    """The typed error of an answer that is none of 2xx."""
    problem = _problem(response)
    if problem is None:
        return _without_problem(response)
    kind = _EXCEPTIONAL_CODES.get(problem.code) or _kind_of(problem.status)
    errors = tuple(error for error in problem.errors if error.pointer or error.detail != problem.detail)
    next_step = _NEXT_STEPS.get(problem.code, "")
    if kind is InfrastructureError and problem.trace_id:
        next_step = f"look for trace {problem.trace_id} in the controller's log"
    return kind(problem.code, problem.detail, next_step, errors)


def _kind_of(status: int) -> type[ClientError]:
    is_refusal = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
    return UsageError if is_refusal and status not in _PASSING else InfrastructureError


def _problem(response: httpx.Response) -> Problem | None:
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        return None


def _without_problem(response: httpx.Response) -> ClientError:
    """A proxy or another server: show the beginning of what it said."""
    text = " ".join(response.text.split())[:_UNREADABLE_CHARACTERS]
    detail = (
        f"HTTP {response.status_code} from {response.url.copy_with(query=None)} without a problem document"
    )
    return UnexpectedAnswerError(
        "unexpected-answer",
        f"{detail}: {text}" if text else detail,
        "check that --controller is the address of a dynofarm controller, without a path",
    )
