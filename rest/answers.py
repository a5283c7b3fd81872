"""An HTTP answer to what the route promises, or to the typed error that it stands for. No network here."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from contract.failures import Fault
from contract.model import printable_text
from contract.problems import PROBLEM_TYPE_PREFIX, PROBLEMS, Problem, ProblemCode
from contract.routes import Route
from rest.errors import (
    BY_CODE,
    AnswerInvalidError,
    ControllerFailedError,
    ControllerUnreachableError,
    NotFoundError,
    PayloadTooLargeError,
    RefusedError,
    RestError,
    TokenRefusedError,
    UnexpectedAnswerError,
)

Answer = TypeVar("Answer")

MAX_ANSWER_BYTES: Final = 64 << 20
MAX_FILE_BYTES: Final = 1 << 30
"""For an answer that is a file; the controller takes none that is larger."""
# With these a server or a proxy says "not now"; the same request may succeed later.
NOT_NOW: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back, whole. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


def answer_of(route: Route[Answer], address: str, got: HttpAnswer) -> Answer:
    """The route's answer, None for an empty one that it allows; a RestError for everything else.

    `address` is that of the controller, for messages.
    """
    if not HTTPStatus.OK <= got.status < HTTPStatus.MULTIPLE_CHOICES:
        raise error_of(address, got)
    kind: Any = route.answer
    # The route's type says what `answer` and `may_be_empty` say at run time; no checker can join the two.
    found: Any
    try:
        if got.status == HTTPStatus.NO_CONTENT and route.may_be_empty:
            found = None
        elif kind is bytes:
            found = got.content
        elif kind is str:
            found = got.content.decode("utf-8", errors="replace")
        else:
            found = TypeAdapter(kind).validate_json(got.content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AnswerInvalidError(
            f"{route} at {address} gave no {kind.__name__}: {printable_text(where)}: {first['msg']}; "
            "install the same dynofarm version here and on the controller"
        ) from error
    return cast(Answer, found)


def error_of(address: str, got: HttpAnswer) -> RestError:
    """The typed error of an answer that is none of 2xx.

    Only a problem document can refuse for good: any other body comes from a proxy, or from something that is
    not the controller, and the true controller may answer the next time.
    """
    problem = _problem(got)
    if problem is None:
        return _without_problem(address, got)
    if got.status in NOT_NOW:
        return ControllerFailedError(problem, _retry_after_s(got, problem))
    if got.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return TokenRefusedError(problem)
    if got.status == HTTPStatus.NOT_FOUND:
        return NotFoundError(problem)
    return BY_CODE.get(problem.code, RefusedError)(problem)


def _problem(got: HttpAnswer) -> Problem | None:
    try:
        problem = Problem.model_validate_json(got.content)
    except ValidationError:
        return None
    errors = [
        each.model_copy(
            update={"pointer": printable_text(each.pointer), "detail": printable_text(each.detail)}
        )
        for each in problem.errors
    ]
    said = {name: printable_text(getattr(problem, name)) for name in ("code", "title", "detail", "trace_id")}
    return problem.model_copy(update={**said, "errors": errors, "status": got.status})


def _without_problem(address: str, got: HttpAnswer) -> RestError:
    said = " ".join(printable_text(got.content[:4096].decode("utf-8", errors="replace")).split())
    detail = f"HTTP {got.status} from {address} without a problem document"
    shown = f"{detail}: {said[:_SHOWN_CHARACTERS]}" if said else detail
    match got.status:
        case status if status in NOT_NOW:
            return ControllerUnreachableError(shown, _retry_after_s(got, None))
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return TokenRefusedError(_made_up(ProblemCode.FORBIDDEN, got.status, shown))
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return PayloadTooLargeError(_made_up(ProblemCode.PAYLOAD_TOO_LARGE, got.status, shown))
        case status if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            target = printable_text(got.headers.get("location", ""))[:_SHOWN_CHARACTERS]
            return UnexpectedAnswerError(f"{address} redirects to {target}; give that address instead")
    return UnexpectedAnswerError(f"{shown}; check that this is the address of a dynofarm controller")


def _made_up(code: ProblemCode, status: int, detail: str) -> Problem:
    return Problem(
        type=PROBLEM_TYPE_PREFIX + code,
        title=code,
        status=status,
        detail=detail,
        code=code,
        fault=Fault.LAB,
        retryable=PROBLEMS[code].retryable,
    )


def _retry_after_s(got: HttpAnswer, problem: Problem | None) -> float | None:
    """Seconds that were asked for; None when nothing was, or a date."""
    if problem is not None and problem.retry_after_s is not None:
        return problem.retry_after_s
    header = got.headers.get("retry-after", "")
    return float(header) if header.isdigit() else None
