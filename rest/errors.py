"""How a call to a controller can fail: one hierarchy for every role, each error says who must act.

Nobody answers, or nobody can answer now: UnavailableError. The controller answered that it will not:
RefusedError, with a class of its own for each code that a caller acts upon. Something answered that is no
controller of ours: UnexpectedAnswerError. Nothing was asked, since the caller's own settings are wrong:
SettingError.
"""

from typing import ClassVar

from contract.events.envelope import Stream
from contract.failures import Fault
from contract.problems import FieldProblem, Problem, ProblemCode


class RestError(Exception):
    """Base. code: stable and kebab-case. detail: for a person, without control characters."""

    code: str = "rest-error"
    fault: Fault = Fault.FARM_BUG
    retryable: bool = False
    """The same call may succeed later, without anybody doing anything."""
    errors: tuple[FieldProblem, ...] = ()
    retry_after_s: float | None = None
    trace_id: str = ""

    def __init__(self, detail: str) -> None:
        """`detail` says what to do, too, where the code alone does not."""
        super().__init__(detail)
        self.detail = detail


class UndecidedError(RestError):
    """The controller decided nothing: once the cause is gone, the same call may have any answer."""


class SettingError(UndecidedError):
    """An address, token or certificate file that cannot be used; nothing was sent."""

    fault = Fault.JOB

    def __init__(self, code: str, detail: str) -> None:
        """`code` such as `bad-address`."""
        super().__init__(detail)
        self.code = code


class UnavailableError(UndecidedError):
    """No answer now; the true controller may answer the next time."""

    fault = Fault.LAB
    retryable = True

    def __init__(self, detail: str, retry_after_s: float | None = None) -> None:
        """retry_after_s: what was asked for, None when nothing was."""
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class ControllerUnreachableError(UnavailableError):
    """Nobody answered within the deadline, or a proxy did in the controller's place."""

    code = "controller-unreachable"
    was_sent: bool = True
    """False where there was no connection: the controller cannot have acted."""


class ControllerFailedError(UnavailableError):
    """The controller answered that it cannot do its work: busy, its database away, or a bug."""

    def __init__(self, problem: Problem, retry_after_s: float | None) -> None:
        """A 500 is tried again too: it may be the one replica that is broken."""
        super().__init__(problem.detail, retry_after_s)
        self.code = problem.code
        self.fault = problem.fault
        self.retryable = problem.retryable
        self.trace_id = problem.trace_id


class UnexpectedAnswerError(UndecidedError):
    """An answer that the contract does not know: another version, or another server."""

    code = "unexpected-answer"
    fault = Fault.LAB


class AnswerInvalidError(UnexpectedAnswerError):
    """A success whose body breaks the contract: the controller acted, and would answer the same again."""


class NotOurFarmError(UnexpectedAnswerError):
    """Something else listens where the farm of this home was: no token was sent to it."""

    code = "not-our-farm"


class RefusedError(RestError):
    """The controller understood and will not; `problem` has every fact."""

    CODE: ClassVar[ProblemCode | None] = None
    """The one code that makes this class; None for a class of several."""

    def __init__(self, problem: Problem) -> None:
        """The document's own detail says what to do."""
        super().__init__(problem.detail)
        self.problem = problem
        self.code = problem.code
        self.fault = problem.fault
        self.retryable = problem.retryable
        self.retry_after_s = problem.retry_after_s
        self.trace_id = problem.trace_id
        self.errors = tuple(e for e in problem.errors if e.pointer or e.detail != problem.detail)


class TokenRefusedError(RefusedError):
    """401 or 403: the token is unknown, was revoked, or allows less."""


class NotFoundError(RefusedError):
    """404: there is no such thing, or not for this caller."""


class NotComparableError(RefusedError):
    """Two runs did not measure the same."""

    CODE = ProblemCode.NOT_COMPARABLE


class LeaseGoneError(RefusedError):
    """The lease is over: stop, clean, say hello."""

    CODE = ProblemCode.LEASE_GONE


class FencedError(RefusedError):
    """A newer grant of the device exists."""

    CODE = ProblemCode.FENCED


class DeviceAgentOutdatedError(RefusedError):
    """Contract versions differ; a person must install the same version on both sides."""

    CODE = ProblemCode.DEVICE_AGENT_OUTDATED


class PayloadTooLargeError(RefusedError):
    """The body is larger than the server, or a proxy before it, takes."""

    CODE = ProblemCode.PAYLOAD_TOO_LARGE


class SeqConflictError(RefusedError):
    """The server holds another event under the same number: two writers, or a lost spool."""

    CODE = ProblemCode.SEQ_CONFLICT


class _EventsLackError(RefusedError):
    @property
    def next_seq(self) -> int:
        """The first event that the server lacks."""
        return self.problem.next_seq or 1


class EventsGapError(_EventsLackError):
    """The server lacks events before the batch: go back to next_seq."""

    CODE = ProblemCode.EVENTS_GAP


class EventsMissingError(_EventsLackError):
    """A result came before its events: `stream` lacks next_seq and what follows."""

    CODE = ProblemCode.EVENTS_MISSING

    @property
    def stream(self) -> Stream | None:
        """None for one that only a newer controller knows."""
        return Stream(self.problem.stream) if self.problem.stream in set(Stream) else None


class ArtifactsMissingError(RefusedError):
    """The result names files that the server does not hold: send them again."""

    CODE = ProblemCode.ARTIFACTS_MISSING


BY_CODE: dict[str, type[RefusedError]] = {
    kind.CODE: kind
    for kind in (
        *(NotComparableError, LeaseGoneError, FencedError, DeviceAgentOutdatedError, PayloadTooLargeError),
        *(SeqConflictError, EventsGapError, EventsMissingError, ArtifactsMissingError),
    )
    if kind.CODE is not None
}
