"""The surface between device agent and controller: enrol, hello, claim, renew, events, result.

Every write carries the fence; the server states durations in each answer, and no clock is compared.
The paths stand in contract/routes.py.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field, PositiveInt, model_validator

from contract.artifacts import MAX_ARTIFACTS_PER_ATTEMPT, ArtifactRef
from contract.calibration import Calibration
from contract.events.envelope import Count, Stream
from contract.ids import AttemptId, ClaimId, DeviceAgentId, DeviceId, LeaseId, Name
from contract.jobs import AttemptSpec
from contract.model import ContractModel, SentModel
from contract.run_end import RunEnd
from contract.states import DeviceState, TargetKind
from contract.version import CONTRACT_VERSION

Seconds = Annotated[float, Field(ge=0)]
Fence = Annotated[int, Field(ge=1)]

MAX_BATCH_BYTES = 1 << 20
MAX_CLAIM_WAIT_S = 55.0
"""Proxies commonly end a request that was silent for 60 s."""


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC this is not a date; send the time of a clock") from None


SentAt = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""A moment that exists in UTC too: `0001-01-01T00:00+01:00` does not."""
Label = Annotated[str, Field(max_length=500)]


class EnrollRequest(SentModel):
    """Exchange a one-time enrolment token (bearer) for the agent's own token."""

    agent_name: Name
    contract_version: str = CONTRACT_VERSION


class EnrollAnswer(ContractModel):
    """The token is shown once; the controller keeps its hash."""

    device_agent_id: DeviceAgentId
    token: str


MODEL_PROBLEMS_MAX = 64


class ModelProblem(ContractModel):
    """Something in the models folder that looks like a model and cannot be used; problem says what to do."""

    file: Label
    problem: Label


class DeviceReport(ContractModel):
    """A device as its agent sees it now. state: what the agent observed, mapped to an event there."""

    device_id: DeviceId
    kind: TargetKind
    generation: Annotated[int, Field(ge=1, lt=2**53)]
    """Rises whenever the device was re-attached or rebooted: old handles are void."""
    ready: bool
    reasons: Annotated[list[Label], Field(max_length=64)] = []
    ready_in_s: Annotated[float, Field(ge=0, le=86_400)] | None = None
    """How long the waiting that the reasons name takes at least; None where that is not known."""
    device_model: Label
    os_name: Label
    os_version: Label
    os_build: Label = ""
    memory_bytes: Count | None = None
    virtual: bool = False
    models: Annotated[list[Name], Field(max_length=1024)] = []
    """Names of the models that can run here."""
    model_problems: Annotated[list[ModelProblem], Field(max_length=MODEL_PROBLEMS_MAX)] = []
    labels: dict[str, str] = {}
    properties: dict[str, Any] = {}
    calibrations: Annotated[list[Calibration], Field(max_length=256)] = []
    """Those that still hold, as far as the agent can see."""


class HostHealth(ContractModel):
    """The agent's own machine."""

    disk_free_bytes: Count
    open_files: Count
    resident_bytes: Count
    spool_backlog_events: Count


class HeldLease(ContractModel):
    """A lease that the agent believes it holds."""

    lease_id: LeaseId
    attempt_id: AttemptId
    fence: Fence


class Hello(SentModel):
    """A full-state report, sent at start and every `hello_interval_s`: lost messages heal by it."""

    contract_version: str = CONTRACT_VERSION
    agent_version: str
    sent_at: SentAt
    health: HostHealth
    devices: Annotated[list[DeviceReport], Field(max_length=256)]
    leases: Annotated[list[HeldLease], Field(max_length=256)] = []

    @model_validator(mode="after")
    def _devices_are_told_apart(self) -> "Hello":
        ids = [device.device_id for device in self.devices]
        twice = next((each for each in ids if ids.count(each) > 1), None)
        if twice is not None:
            raise ValueError(f"devices: two have the id {twice!r}; a device is reported once")
        return self


class DeviceStanding(ContractModel):
    """What the controller holds of a device after the hello."""

    device_id: DeviceId
    state: DeviceState
    reasons: list[str] = []


class HelloAnswer(ContractModel):
    """Leases not named in `continue_leases` are to be abandoned: stop, clean, keep the spool."""

    hello_interval_s: Seconds
    claim_wait_s: Seconds
    continue_leases: list[LeaseId]
    abandon_leases: list[LeaseId]
    devices: list[DeviceStanding]
    drain: bool = False


class ClaimRequest(ContractModel):
    """Ask for one attempt on one of the ready devices. The same claim_id always gets the same answer."""

    claim_id: ClaimId
    devices: Annotated[list[DeviceId], Field(min_length=1, max_length=256)]
    wait_s: Annotated[float, Field(ge=0, le=MAX_CLAIM_WAIT_S)] = 50.0


class Lease(ContractModel):
    """The right to use one device for one attempt until the ttl runs out.

    The agent's own deadline is the monotonic time at which it SENT the request, plus ttl_s,
    minus margin_s; then it stops touching the device by itself (self-fence).
    """

    lease_id: LeaseId
    attempt_id: AttemptId
    device_id: DeviceId
    fence: Fence
    ttl_s: Seconds
    renew_interval_s: Seconds
    margin_s: Seconds
    spec: AttemptSpec


Phase = Literal["preparing", "running", "uploading"]


class RenewRequest(ContractModel):
    """Keep the lease and report the phase. The first renewal is the acceptance."""

    fence: Fence
    phase: Phase
    sent_at: SentAt
    trials_done: Annotated[int, Field(ge=0, le=10_000)] = 0


class RenewAnswer(ContractModel):
    """Cancel travels here; 410 `lease-gone` means stop, clean, hello."""

    ttl_s: Seconds
    renew_interval_s: Seconds
    margin_s: Seconds
    directive: Literal["continue", "cancel"]


class EventBatchHeader(ContractModel):
    """First line of an event upload (gzip NDJSON of at most MAX_BATCH_BYTES uncompressed); events follow,
    one a line, numbered first_seq, first_seq + 1 and so on."""

    stream: Stream
    first_seq: PositiveInt
    count: Annotated[int, Field(ge=1, le=10_000)]
    fence: Fence
    sent_at: SentAt


class EventsAnswer(ContractModel):
    """Everything before next_seq is stored for good (cumulative acknowledgement)."""

    next_seq: PositiveInt
    min_interval_s: Seconds
    directive: Literal["continue", "cancel"]


class ResultRequest(RunEnd):
    """The agent's last word on an attempt. Accepted only when every event up to last_seq is stored."""

    fence: Fence
    last_seq: dict[Stream, Count]
    artifacts: Annotated[list[ArtifactRef], Field(max_length=MAX_ARTIFACTS_PER_ATTEMPT)] = []
    """Files that must be stored before it is accepted; none is taken after it."""


class ResultAnswer(ContractModel):
    """The state that the attempt has now: for a late result it may be `orphaned` or a salvaged one."""

    attempt_id: AttemptId
    state: str
    salvaged: bool = False
