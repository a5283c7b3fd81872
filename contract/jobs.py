"""What a runtime is asked to do: arms, trials and engine options, resolved for one device."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from contract.calibration import Calibration
from contract.ids import AttemptId, JobId, Name, RunId
from contract.model import ContractModel
from contract.version import CONTRACT_VERSION
from contract.workload import CompiledWorkload

ArmMode = Literal["serial", "serial_cached", "paged"]
"""serial: agents one after the other, no reuse, contiguous cache. serial_cached: the same
order with the prefix cache on. paged: the scheduler, shared prefix, batches."""


class EngineOptions(ContractModel):
    """How the runtime is set up. None and auto let it choose and record its choice in the conditions.

    threads, max_batch_sequences and prefill_chunk_tokens: None takes what the device was calibrated to, else
    the runtime's defaults: every core, 8, and 512 (256 with the native tier).
    """

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where tensors lie; auto is a CUDA device where there is one, else the CPU."""
    tier: Literal["auto", "aten", "native", "cuda"] = "auto"
    """Which kernels run; auto is the fastest that works here, recorded in the conditions."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    weight_dtype: Literal["auto", "int8"] = "auto"
    """Precision in which the weights of linear layers are kept; auto is that of the computation."""
    threads: Annotated[int, Field(ge=1, le=256)] | None = None
    block_tokens: Annotated[int, Field(ge=16, le=256)] = 16
    kv_pool_tokens: Annotated[int, Field(ge=16, le=100_000_000)] | None = None
    """Size of the KV pool in tokens; None derives it from the memory limit."""
    memory_limit_bytes: Annotated[int, Field(ge=1 << 20, lt=2**53)] | None = None
    max_batch_sequences: Annotated[int, Field(ge=1, le=256)] | None = None
    prefill_chunk_tokens: Annotated[int, Field(ge=16, le=65_536)] | None = None
    contamination_check: bool = False


class ArmSpec(ContractModel):
    """One side of a comparison."""

    arm: Name
    mode: ArmMode
    engine: EngineOptions = EngineOptions()


class TrialSpec(ContractModel):
    """One execution of the workload by one arm. Trials run in the order of the list.

    Trials with the same `pair` are compared with each other; a warm-up has pair None.
    """

    trial: PositiveInt
    arm: Name
    pair: PositiveInt | None
    warmup: bool = False


class Limits(ContractModel):
    """Deadlines of an attempt, in seconds. The controller enforces all of them."""

    prepare_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    run_s: Annotated[float, Field(gt=0, le=86_400)] = 3600.0
    upload_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    stall_s: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """No event for this long while running: the runtime has stalled."""


class BuildRef(ContractModel):
    """What was built: a commit and, where one was uploaded, the artefact's digest."""

    commit: Annotated[str, Field(min_length=1, max_length=200)] = "unknown"
    artifact: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None


class JobSpec(ContractModel):
    """Everything about one cell of a run that is known before a device takes it."""

    contract_version: str = CONTRACT_VERSION
    job_id: JobId
    run_id: RunId
    model: Name
    """Name of a model that the agent has; the agent resolves it to a file."""
    build: BuildRef = BuildRef()
    workload: CompiledWorkload
    arms: Annotated[list[ArmSpec], Field(min_length=1, max_length=16)]
    trials: Annotated[list[TrialSpec], Field(min_length=1, max_length=10_000)]
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _names_agree(self) -> "JobSpec":
        arms = {arm.arm for arm in self.arms}
        if len(arms) != len(self.arms):
            raise ValueError("arms: two arms have the same name")
        unknown = sorted({trial.arm for trial in self.trials} - arms)
        if unknown:
            raise ValueError(f"trials: no arm is named {unknown[0]!r}")
        numbers = [trial.trial for trial in self.trials]
        if numbers != list(range(1, len(numbers) + 1)):
            raise ValueError("trials: they must be numbered 1, 2, 3 in the order in which they run")
        return self

    def for_attempt(self, attempt_id: AttemptId, calibrations: dict[Name, Calibration]) -> "AttemptSpec":
        """The job for the device that took it."""
        return AttemptSpec(**dict(self), attempt_id=attempt_id, calibrations=calibrations)


class AttemptSpec(JobSpec):
    """A job for one device: everything that a runtime needs for one attempt. Written as a file, read once."""

    attempt_id: AttemptId
    calibrations: dict[Name, Calibration] = {}
    """By arm, what the device was calibrated to, for the options that `engine` leaves open."""

    @model_validator(mode="after")
    def _calibrations_are_of_arms(self) -> "AttemptSpec":
        unknown = sorted(set(self.calibrations) - {arm.arm for arm in self.arms})
        if unknown:
            raise ValueError(f"calibrations: no arm is named {unknown[0]!r}")
        return self
