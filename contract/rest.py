"""The public REST surface, prefix /v1: what people and CI submit and read."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, PositiveInt

from contract import bounds
from contract.agent_api import ModelProblem
from contract.calibration import Calibration
from contract.events.lifecycle import BudgetRow, Conditions
from contract.failures import FailureReason
from contract.ids import AttemptId, DeviceAgentId, DeviceId, JobId, Name, RunId
from contract.jobs import ArmMode, BuildRef, EngineOptions, Limits
from contract.metrics import MetricDefinition
from contract.model import ContractModel, SentModel
from contract.states import (
    AttemptState,
    DeviceState,
    GateExit,
    JobOutcome,
    JobState,
    RunOutcome,
    RunState,
    TargetKind,
)


class WorkloadRequest(ContractModel):
    """Either a workload that the server has, by name, or the text of a workload file."""

    name: Name | None = None
    source: Annotated[str, Field(max_length=1_000_000)] | None = None
    source_name: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,255}$")] = "workload.yaml"
    """Named in error messages about `source`."""
    params: dict[str, Any] = {}


class DeviceSelector(ContractModel):
    """Which devices may run it. Every given field must match; `model` is the device model."""

    kind: TargetKind = TargetKind.HOST
    device_id: DeviceId | None = None
    device_model: str | None = None
    os_version: str | None = None
    labels: dict[str, str] = {}


class ArmRequest(ContractModel):
    """One side of the comparison; `engine` overrides the run's options field by field."""

    arm: Name
    mode: ArmMode
    engine: dict[str, Any] = {}


class GateRequest(ContractModel):
    """How the verdict is reached (docs/adr/0021)."""

    metrics: Annotated[list[str], Field(min_length=1, max_length=32)] = ["wall_s"]
    alpha: Annotated[float, Field(ge=bounds.MIN_ALPHA, lt=bounds.ALPHA_BELOW)] = 0.05
    floor_percent: dict[str, Annotated[float, Field(ge=0, lt=bounds.FLOOR_PERCENT_BELOW)]] = {}
    inconclusive: Literal["pass", "fail"] = "fail"
    """`pass` turns exit code 3 into 0; the verdict stays what it is."""


class RunRequest(SentModel):
    """A benchmark to run: workload x devices x arms x repetitions."""

    workload: WorkloadRequest
    model: Name
    selectors: Annotated[list[DeviceSelector], Field(min_length=1, max_length=64)] = [DeviceSelector()]
    arms: Annotated[list[ArmRequest], Field(min_length=1, max_length=8)] = [
        ArmRequest(arm="serial", mode="serial"),
        ArmRequest(arm="paged", mode="paged"),
    ]
    baseline: Name = "serial"
    candidate: Name = "paged"
    repetitions: Annotated[int, Field(ge=1, le=bounds.MAX_PAIRS)] = 5
    """Pairs of trials (one trial per arm each) on every device."""
    warmups: Annotated[int, Field(ge=0, le=bounds.MAX_WARMUPS)] = 1
    """Discarded trials per arm before the first pair."""
    design: Literal["abba", "random"] = "abba"
    seed: Annotated[int, Field(ge=0, lt=bounds.SEED_BELOW)] = 0
    engine: EngineOptions = EngineOptions()
    build: BuildRef = BuildRef()
    gate: GateRequest = GateRequest()
    limits: Limits = Limits()
    priority: Annotated[int, Field(ge=0, le=9)] = 5
    queue_deadline_s: Annotated[float, Field(gt=0, le=30 * 86_400)] = 86_400.0
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    labels: dict[str, str] = {}
    wait_for_capacity: bool = False
    """Accept the run although no device matches now."""


class AttemptView(ContractModel):
    """One try of a job."""

    attempt_id: AttemptId
    job_id: JobId
    number: PositiveInt
    state: AttemptState
    reason: FailureReason | None
    detail: str
    device_id: DeviceId
    device_agent_id: DeviceAgentId
    trials_done: int
    trials_total: int
    next_seq: dict[str, int]
    """Per stream, the next event that the server expects."""
    created_at: AwareDatetime
    ended_at: AwareDatetime | None
    salvaged: bool = False


class JobView(ContractModel):
    """One cell of the matrix. waiting_reason says why a queued job waits; it is empty in lists of runs."""

    job_id: JobId
    run_id: RunId
    state: JobState
    outcome: JobOutcome | None
    selector: DeviceSelector
    variant: str
    waiting_reason: str
    attempts: list[AttemptView]


class RunView(ContractModel):
    """A run and where it stands."""

    run_id: RunId
    state: RunState
    outcome: RunOutcome | None
    workload: str
    workload_digest: str
    model: str
    build: BuildRef
    baseline: str
    candidate: str
    labels: dict[str, str]
    created_at: AwareDatetime
    completed_at: AwareDatetime | None
    jobs: list[JobView]
    report_url: str


class RunPage(ContractModel):
    """Newest first. next_page_token None at the end."""

    runs: list[RunView]
    next_page_token: str | None


class DeviceView(ContractModel):
    """A device of the farm."""

    device_id: DeviceId
    device_agent_id: DeviceAgentId
    kind: TargetKind
    state: DeviceState
    reasons: list[str]
    device_model: str
    os_name: str
    os_version: str
    os_build: str
    memory_bytes: int | None
    virtual: bool
    models: list[str]
    model_problems: list[ModelProblem] = []
    """What lies in its models folder and cannot be used."""
    labels: dict[str, str]
    calibrations: list[Calibration] = []
    """What it was calibrated to, as its agent last reported."""
    fence: int
    attempt_id: AttemptId | None
    then: DeviceState | None = None
    """Where a person has sent it: it goes there once its attempt has ended."""
    reserved_until: AwareDatetime | None = None
    last_seen_at: AwareDatetime
    state_since: AwareDatetime
    ready_at: AwareDatetime | None = None
    """While it waits for a condition: when its agent thinks that this is over at the earliest."""


class DevicePage(ContractModel):
    """By id. next_page_token None at the end."""

    devices: list[DeviceView]
    next_page_token: str | None = None


class DeviceExplanation(ContractModel):
    """A device from the view of a waiting job: what never fits, what will pass; both empty: it is next."""

    device_id: DeviceId
    misses: list[str]
    waits: list[str]


class JobExplanation(ContractModel):
    """Why a job waits, device by device."""

    job_id: JobId
    state: JobState
    waiting_reason: str
    devices: list[DeviceExplanation]


class MetricList(ContractModel):
    """The metric catalogue, in the order in which it is shown."""

    metrics: list[MetricDefinition]


class WorkloadParameter(ContractModel):
    """One knob of a workload."""

    name: str
    kind: Literal["integer", "number", "boolean", "string"]
    default: Any
    minimum: float | None = None
    maximum: float | None = None
    description: str


class WorkloadView(ContractModel):
    """A workload that can be named in a run."""

    name: Name
    version: PositiveInt
    title: str
    description: str
    parameters: list[WorkloadParameter]


class WorkloadList(ContractModel):
    """Every workload, by name."""

    workloads: list[WorkloadView]


class EventsPage(ContractModel):
    """Stored events of one stream, as they were written. next_seq: ask from here next."""

    stream: str
    events: list[dict[str, Any]]
    next_seq: PositiveInt


class Spread(ContractModel):
    """A value per trial, summed up. n 0 cannot be: a metric without values is left out."""

    median: float
    min: float
    max: float
    n: PositiveInt


class ArmReport(ContractModel):
    """One arm's results. metrics: name from the catalogue to the spread over trials."""

    arm: str
    mode: ArmMode
    trials: int
    trials_failed: int
    metrics: dict[str, Spread]
    agent_ttft_ms: dict[str, Spread]
    budget: list[BudgetRow]


class MetricVerdict(ContractModel):
    """The verdict on one metric of one device; change and interval in percent of the baseline."""

    metric: str
    verdict: Literal["improved", "regressed", "same", "small_change", "inconclusive"]
    change_percent: float | None
    interval_percent: tuple[float, float] | None
    interval_confidence: float | None = None
    """The coverage that the interval really has, from 0 to 1: below 0.95 for fewer than six pairs."""
    statistic: float | None
    """Hodges-Lehmann estimate of log(candidate / baseline)."""
    p_value: float | None
    pairs: int
    pairs_dropped: int
    mde_percent: float | None
    floor_percent: float
    reason: str


class GateView(ContractModel):
    """The gate of a run: the worst of its metrics over all devices."""

    verdict: Literal[
        "pass", "regression", "usage", "inconclusive", "infrastructure", "cancelled", "no_capacity"
    ]
    exit_code: GateExit
    reason: str
    metrics: list[MetricVerdict]


class PairView(ContractModel):
    """Wall times of one pair of trials, by arm, in seconds; an arm that did not complete is missing."""

    pair: PositiveInt
    wall_s: dict[str, float]


class DeviceReportView(ContractModel):
    """One job's results, on one device: figures never mix device models."""

    job_id: JobId
    variant: str
    device_id: DeviceId
    device_model: str
    os_version: str
    kind: TargetKind
    virtual: bool
    conditions: Conditions | None
    """None where the runtime told none."""
    arms: dict[str, ArmReport]
    pairs: list[PairView] = []
    """In their order; a pair without any completed trial is left out."""
    wall_reduction_percent: float | None
    speedup: float | None
    verdicts: list[MetricVerdict]
    reading: list[str]
    failures: list[str]
    """What went wrong and what to try."""
    sample_texts: list[str]


class RunReport(ContractModel):
    """Everything a person wants to know about a run."""

    run_id: RunId
    workload: str
    model: str
    state: RunState
    outcome: RunOutcome | None
    baseline: str
    candidate: str
    devices: list[DeviceReportView]
    gate: GateView
    report_url: str


class Comparison(ContractModel):
    """Two runs, metric by metric: shown, not judged. `differs` names conditions that are not the same."""

    run_id: RunId
    baseline_run_id: RunId
    arm: str
    differs: list[str]
    metrics: dict[str, tuple[Spread, Spread]]
    change_percent: dict[str, float]
    """Left out where the baseline is 0 or next to nothing beside the other."""
    beyond_noise: dict[str, bool | None] = {}
    """Whether the ranges over trials lie apart; None with fewer than four trials in a run."""
    note: str


class Point(ContractModel):
    """x in seconds since the attempt's first event."""

    t_s: float
    value: float


class Series(ContractModel):
    """A line for a figure, from raw events; unit as in the catalogue."""

    name: str
    unit: str
    label: str
    points: list[Point]


class LiveView(ContractModel):
    """What the live page shows of the newest attempt of a run."""

    run_id: RunId
    attempt_id: AttemptId | None
    state: str
    trial: int | None
    trials_done: int
    trials_total: int
    series: list[Series]
    agent_ttft_ms: dict[str, dict[str, float]]
    """Arm to agent to TTFT of its newest trial."""
    sample_texts: list[str]
