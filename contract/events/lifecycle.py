"""Events of a runtime's life: start-up stages, conditions, budget, trials, end."""

from typing import Any, Literal

from pydantic import AwareDatetime

from contract.events.envelope import Count, EventEnvelope, Stream, Trial
from contract.failures import FailureReason
from contract.ids import AttemptId, Name
from contract.model import ContractModel, SentModel


class Producer(ContractModel):
    """Who writes a stream."""

    name: str
    version: str
    build: str = "unknown"


class StreamOpened(EventEnvelope):
    """First event of every stream; a reader refuses an unknown contract_version."""

    type: Literal["stream_opened"] = "stream_opened"
    stream: Stream
    contract_version: str
    attempt_id: AttemptId
    producer: Producer
    t_wall: AwareDatetime
    """Wall clock at t_mono_ns, for display only."""


class RuntimeStage(EventEnvelope):
    """A named stage of start-up has ended: tokenizer, weights, pipelines, ready."""

    type: Literal["runtime_stage"] = "runtime_stage"
    stage: Literal["tokenizer", "weights", "pipelines", "ready"]
    duration_ns: Count


class ArmConditions(ContractModel):
    """What one arm ran with; a runtime leaves out what it does not have."""

    mode: str = ""
    device: str = ""
    """Where tensors lay: cpu, cuda or mps."""
    device_name: str = ""
    device_driver: str = ""
    device_cuda: str = ""
    tier: str = ""
    tier_lost: str = ""
    """What a faster tier would have given, and why it was not used."""
    dtype: str = ""
    weight_dtype: str = ""
    threads: int | None = None
    max_batch_sequences: int | None = None
    prefill_chunk_tokens: int | None = None
    block_tokens: int | None = None
    contamination_check: bool = False
    option_origins: dict[str, Literal["asked", "calibrated", "default"]] = {}
    """By engine option, where its value came from."""
    calibrated_at: AwareDatetime | None = None
    calibration_ignored: str = ""
    """Why none of the calibrated values was used."""


class Conditions(SentModel):
    """Under what a result was measured. Results under different conditions are not compared silently."""

    device_model: str
    os_name: str
    os_version: str
    os_build: str = ""
    cpu: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    runtime_name: str
    runtime_version: str
    tier: str
    """Which kernels ran, e.g. `aten`."""
    dtype: str
    threads: int | None = None
    model_name: str
    model_digest: str
    model_parameters: int | None = None
    low_power_mode: bool | None = None
    screen_on: bool | None = None
    thermal_state: str = "unknown"
    battery_percent: float | None = None
    charging: bool | None = None
    virtual: bool = False
    """True for an emulated device: nothing here was measured on a phone."""
    arms: dict[Name, ArmConditions] = {}
    """Empty in what a runtime of 0.1 recorded."""
    extra: dict[str, Any] = {}
    """For people: whatever else a runtime knows of itself. No program reads it by name."""


class ConditionsRecorded(EventEnvelope):
    """The conditions at the start of the attempt."""

    type: Literal["conditions_recorded"] = "conditions_recorded"
    conditions: Conditions


class BudgetRow(ContractModel):
    """One line of the memory budget table."""

    name: str
    size_bytes: int
    note: str = ""


class MemoryBudgeted(EventEnvelope):
    """The memory budget of one arm, before its first trial."""

    type: Literal["memory_budgeted"] = "memory_budgeted"
    arm: Name
    limit_bytes: Count | None
    rows: list[BudgetRow]
    block_tokens: Count
    block_size_bytes: Count
    blocks: Count
    agents_requested: Count
    agents_admitted: Count


class TrialStarted(EventEnvelope):
    """Wall time of the trial starts here: the tasks are known, nothing is computed yet."""

    type: Literal["trial_started"] = "trial_started"
    trial: Trial
    arm: Name
    pair: Trial | None
    warmup: bool


class TrialFinished(EventEnvelope):
    """Wall time of the trial ends here: the last agent is done."""

    type: Literal["trial_finished"] = "trial_finished"
    trial: Trial
    status: Literal["completed", "failed", "cancelled"]
    reason: FailureReason | None = None


class RuntimeFinished(EventEnvelope):
    """Last event of the control stream: the runtime ends on purpose."""

    type: Literal["runtime_finished"] = "runtime_finished"
    status: Literal["completed", "failed", "cancelled"]
    reason: FailureReason | None = None
    detail: str = ""


class LogLine(EventEnvelope):
    """A line for people."""

    type: Literal["log_line"] = "log_line"
    level: Literal["debug", "info", "warning", "error"]
    message: str
