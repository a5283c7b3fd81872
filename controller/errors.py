"""What can go wrong in the controller: each error names one failure and says who must act.

`kind` is the code of the problem document; its HTTP status, who must act and whether to try again stand in
the one table of contract/problems.py. Source: docs/adr/0006.
"""

from typing import ClassVar

from contract.problems import ProblemCode


class FarmError(Exception):
    """Base of all. The text tells a person what to do."""

    kind: ClassVar[ProblemCode] = ProblemCode.INTERNAL


# --- who asks


class NotAuthenticatedError(FarmError):
    """No token, or one that is unknown, expired, revoked or used up."""

    kind = ProblemCode.NOT_AUTHENTICATED

    def __init__(self, detail: str = "send a valid token as `Authorization: Bearer ...`") -> None:
        """`detail` must not say which part of a token was wrong."""
        super().__init__(detail)


class HostRefusedError(FarmError):
    """The Host header is none of this controller's names."""

    kind = ProblemCode.HOST_REFUSED

    def __init__(self) -> None:
        """The names stay untold: whoever asks under a wrong one need not learn them."""
        super().__init__(
            "this controller is not reached under that host name; "
            "use its address, or add the name to DYNOFARM_ALLOWED_HOSTS"
        )


class ForbiddenError(FarmError):
    """The token is good, but not for this."""

    kind = ProblemCode.FORBIDDEN


# --- what is asked


class BadRequestError(FarmError):
    """One field of a request cannot be used; `pointer` is a JSON pointer into the body."""

    kind = ProblemCode.VALIDATION

    def __init__(self, pointer: str, detail: str) -> None:
        """`pointer` such as `/engine/kv_pool_tokens`, "" for the body as a whole."""
        super().__init__(detail)
        self.pointer = pointer
        self.detail = detail


class IdempotencyKeyReusedError(FarmError):
    """The key was used before, with another body."""

    kind = ProblemCode.IDEMPOTENCY_KEY_REUSED

    def __init__(self, key: str) -> None:
        super().__init__(f"Idempotency-Key {key!r} was already used for another request; choose a new key")


class PayloadTooLargeError(FarmError):
    """A body is larger than its limit, before or after decompression."""

    kind = ProblemCode.PAYLOAD_TOO_LARGE

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` is what would have been accepted."""
        super().__init__(f"the body has more than {limit_bytes} bytes; send it in smaller parts")
        self.limit_bytes = limit_bytes


class NotFoundError(FarmError):
    """Base of the errors that say: there is no such thing, or not for you."""

    kind = ProblemCode.NOT_FOUND
    thing: ClassVar[str] = "resource"

    def __init__(self, identifier: str) -> None:
        super().__init__(f"there is no {self.thing} {identifier!r}; check the id, or list what there is")
        self.identifier = identifier


class RunNotFoundError(NotFoundError):
    kind = ProblemCode.RUN_NOT_FOUND
    thing = "run"


class JobNotFoundError(NotFoundError):
    kind = ProblemCode.JOB_NOT_FOUND
    thing = "job"


class AttemptNotFoundError(NotFoundError):
    """No such attempt, or it belongs to another agent."""

    kind = ProblemCode.ATTEMPT_NOT_FOUND
    thing = "attempt"


class DeviceNotFoundError(NotFoundError):
    kind = ProblemCode.DEVICE_NOT_FOUND
    thing = "device"


class ArtifactNotFoundError(NotFoundError):
    """The attempt has no artifact of that name."""

    kind = ProblemCode.ARTIFACT_NOT_FOUND
    thing = "artifact"


class TokenNotFoundError(NotFoundError):
    kind = ProblemCode.TOKEN_NOT_FOUND
    thing = "token"


class DeviceAgentNotFoundError(NotFoundError):
    kind = ProblemCode.DEVICE_AGENT_NOT_FOUND
    thing = "device agent"


class SelectorUnsatisfiableError(FarmError):
    """No device of the farm matches; `nearest_misses` says, device by device, what would have to differ."""

    kind = ProblemCode.SELECTOR_UNSATISFIABLE

    def __init__(self, pointer: str, nearest_misses: tuple[str, ...]) -> None:
        """`pointer` names the selector in the body; an empty `nearest_misses` means: no devices at all."""
        near = "; ".join(nearest_misses) or "the farm has no devices yet: start a device agent"
        super().__init__(
            f"no device matches this selector ({near}). "
            "Change the selector, or set wait_for_capacity to queue the run until one appears"
        )
        self.pointer = pointer
        self.nearest_misses = nearest_misses


class InvalidTransitionError(FarmError):
    """The table of a state machine has no such edge; nothing was changed."""

    kind = ProblemCode.INVALID_TRANSITION

    def __init__(self, machine: str, state: str, cause: str) -> None:
        """`machine` such as `device`; `state` where it is, `cause` what was tried."""
        super().__init__(f"cannot apply {cause} to a {machine} that is {state}; look at it again")
        self.machine = machine
        self.state = state
        self.cause = cause


# --- leases


class LeaseGoneError(FarmError):
    """The lease has expired, was revoked or never was: stop, clean, say hello."""

    kind = ProblemCode.LEASE_GONE

    def __init__(self, lease_id: str) -> None:
        super().__init__(f"lease {lease_id} is gone: stop touching the device, clean it, then say hello")


class FencedError(FarmError):
    """A write came with a fence that is not the attempt's: somebody else has the device now."""

    kind = ProblemCode.FENCED

    def __init__(self, sent_fence: int, fence: int) -> None:
        """`sent_fence` came with the write, `fence` is what it would have needed."""
        super().__init__(f"the write has fence {sent_fence}, the attempt has {fence}; it was not applied")
        self.sent_fence = sent_fence
        self.fence = fence


class AgentOutdatedError(FarmError):
    """The agent speaks a contract version that is not spoken here."""

    kind = ProblemCode.DEVICE_AGENT_OUTDATED

    def __init__(self, found: str, known: tuple[str, ...]) -> None:
        """`found` is the agent's version, `known` what this controller speaks."""
        super().__init__(
            f"the agent speaks contract {found!r}, this controller {', '.join(known)}; "
            "install the same dynofarm version on both"
        )


# --- events and results


class EventsGapError(FarmError):
    """The batch starts after the next event that the server needs: send from `next_seq`."""

    kind = ProblemCode.EVENTS_GAP

    def __init__(self, stream: str, next_seq: int) -> None:
        """`next_seq` is the first event that the server lacks."""
        super().__init__(f"stream {stream}: the next event to send is {next_seq}")
        self.stream = stream
        self.next_seq = next_seq


class SeqConflictError(FarmError):
    """A sent event differs from the stored one of the same number: two writers, or a rewritten spool."""

    kind = ProblemCode.SEQ_CONFLICT

    def __init__(self, stream: str, seq: int) -> None:
        """`seq` is the first number that differs."""
        super().__init__(f"stream {stream}: event {seq} is stored with another content")
        self.stream = stream
        self.seq = seq


class StreamSealedError(FarmError):
    """The attempt's result was accepted: its events are complete and none may follow."""

    kind = ProblemCode.STREAM_SEALED

    def __init__(self, stream: str, next_seq: int) -> None:
        """`next_seq` is one more than the last stored event."""
        super().__init__(f"stream {stream} ended before event {next_seq} with the accepted result")
        self.stream = stream
        self.next_seq = next_seq


class EventsMissingError(FarmError):
    """A result names events that are not stored: send from `next_seq`, then the result again."""

    kind = ProblemCode.EVENTS_MISSING

    def __init__(self, stream: str, next_seq: int) -> None:
        """`next_seq` is the first event that the server lacks."""
        super().__init__(f"stream {stream}: event {next_seq} is missing; send it, then the result again")
        self.stream = stream
        self.next_seq = next_seq


class ArtifactsMissingError(FarmError):
    """A result names artifacts that are not stored: send them, then the result again."""

    kind = ProblemCode.ARTIFACTS_MISSING

    def __init__(self, missing: tuple[str, ...]) -> None:
        super().__init__(f"artifacts are missing: {', '.join(missing)}; send them, then the result again")
        self.missing = missing


class ArtifactConflictError(FarmError):
    """The attempt already has an artifact of that name with another content."""

    kind = ProblemCode.ARTIFACT_CONFLICT

    def __init__(self, name: str) -> None:
        super().__init__(f"artifact {name!r} is stored with another content; choose another name")


class AttemptSealedError(FarmError):
    """The attempt's result was accepted: what belongs to it is complete, and no file may follow."""

    kind = ProblemCode.ATTEMPT_SEALED

    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"the result of {attempt_id} was accepted; no artifact is taken after it")


class TooManyArtifactsError(FarmError):
    """The attempt has as many artifacts as one may have."""

    kind = ProblemCode.TOO_MANY_ARTIFACTS

    def __init__(self, limit: int) -> None:
        """`limit` is how many an attempt may have."""
        super().__init__(f"the attempt has {limit} artifacts, which is the most that one may have")


# --- the controller itself


class NotReadyError(FarmError):
    """The controller cannot serve yet: its database is away or not migrated."""

    kind = ProblemCode.NOT_READY


class StoreBusyError(FarmError):
    """Another writer held the database too long, or every connection is in use."""

    kind = ProblemCode.STORE_BUSY

    def __init__(self, problem: str = "the database is busy") -> None:
        super().__init__(f"{problem}; try again in a moment")


class StoreUnreachableError(FarmError):
    """The database cannot be reached, or cannot be read."""

    kind = ProblemCode.STORE_UNREACHABLE

    def __init__(self, said: str) -> None:
        """`said` is what its driver said, in one line."""
        super().__init__(f"the database cannot be reached ({said}); start it, or look at its log")


class StoreFullError(FarmError):
    """The disk of the database is full."""

    kind = ProblemCode.STORE_FULL

    def __init__(self) -> None:
        super().__init__("the disk of the database is full; free space there, then try again")


class StoreReadOnlyError(FarmError):
    """The database takes no writes: a standby, or a file without the right to write."""

    kind = ProblemCode.STORE_READ_ONLY

    def __init__(self) -> None:
        super().__init__(
            "the database is read-only; point DYNOFARM_DATABASE_URL to the primary, or make its file writable"
        )


STORE_ERRORS = (StoreBusyError, StoreUnreachableError, StoreFullError, StoreReadOnlyError)
"""What keeps the database from serving; nothing was changed, and it may work later."""


class SchemaNewerError(FarmError):
    """The tables were made by a newer version of dynofarm than this one."""

    kind = ProblemCode.SCHEMA_NEWER

    def __init__(self, revision: str) -> None:
        """`revision` is the database's, unknown here."""
        super().__init__(
            f"the database has the schema {revision}, which is newer than this dynofarm; install the version "
            "that made it, or restore the backup that was taken before the upgrade"
        )
