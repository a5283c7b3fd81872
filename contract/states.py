"""States and outcomes as words. Which edges exist is in the controller's tables, not here."""

from enum import IntEnum, StrEnum


class TargetKind(StrEnum):
    """The three kinds of target behind one port, and the emulated iPhone."""

    HOST = "host"
    IOS = "ios"
    ENDPOINT = "endpoint"
    VIRTUAL = "virtual"


class RunState(StrEnum):
    """Life of what a person submitted."""

    ACTIVE = "active"
    FINISHING = "finishing"
    COMPLETED = "completed"


class RunOutcome(StrEnum):
    """How a completed run ended; the worst of its jobs and its gate."""

    PASSED = "passed"
    INCONCLUSIVE = "inconclusive"
    REGRESSED = "regressed"
    FAILED = "failed"
    INFRA_ERROR = "infra_error"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class JobState(StrEnum):
    """Life of one cell of the matrix."""

    QUEUED = "queued"
    ASSIGNED = "assigned"
    RUNNING = "running"
    CANCELLING = "cancelling"
    DONE = "done"


class JobOutcome(StrEnum):
    """How a done job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    INFRA_FAILED = "infra_failed"


class AttemptState(StrEnum):
    """Life of one try. The states after `uploading` are terminal, but `lost` may still be salvaged."""

    LEASED = "leased"
    PREPARING = "preparing"
    RUNNING = "running"
    UPLOADING = "uploading"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    ERRORED = "errored"
    REFUSED = "refused"
    LOST = "lost"
    ORPHANED = "orphaned"


class DeviceState(StrEnum):
    """Life of a device; see docs/devices.md for the drawn table."""

    UNKNOWN = "unknown"
    PREPARING = "preparing"
    BLOCKED = "blocked"
    CHECKING = "checking"
    READY = "ready"
    LEASED = "leased"
    RESERVED = "reserved"
    HELD = "held"
    CLEANING = "cleaning"
    COOLING = "cooling"
    CHARGING = "charging"
    RECOVERING = "recovering"
    QUARANTINED = "quarantined"
    ABSENT = "absent"
    LOST = "lost"
    MAINTENANCE = "maintenance"
    RETIRED = "retired"


class GateExit(IntEnum):
    """Exit codes of the gate. `--json` never changes them."""

    PASS = 0
    REGRESSION = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INFRASTRUCTURE = 4
    CANCELLED = 5
    NO_CAPACITY = 6
