"""What one device was measured to do best with one model, and the lines that a calibration writes as it goes.

A calibration holds only where everything in its key is as it was; whoever finds a difference ignores it and
says what differs. The runtime measures, the device agent keeps and reports, the controller hands it to each
arm whose submitter left an option open, and the runtime checks the key once more before it uses a value.
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import AwareDatetime, Field, PositiveInt, TypeAdapter

from contract.ids import Name
from contract.model import ContractModel

OptionName = Literal["threads", "max_batch_sequences", "prefill_chunk_tokens"]
CALIBRATED_OPTIONS: tuple[OptionName, ...] = get_args(OptionName)
"""The engine options that are measured."""

Word = Annotated[str, Field(max_length=64)]
Percent = Annotated[float, Field(ge=0, le=100)]


class CalibrationKey(ContractModel):
    """What the measured values depend on."""

    model_digest: Annotated[str, Field(max_length=80)]
    runtime_version: Word
    torch_version: Word
    cpu: Annotated[str, Field(max_length=200)]
    cores: PositiveInt
    """Those that the runtime may use."""
    device: Word
    """Where tensors lie: cpu, cuda or mps."""
    tier: Word
    """Kernels that `auto` chose."""
    dtype: Word
    """Precision that `auto` chose."""
    weight_dtype: Word = "auto"

    def differences(self, now: "CalibrationKey") -> list[str]:
        """Each part that is another now, as `tier: native then, aten now`; empty where the values hold."""
        before, after = self.model_dump(), now.model_dump()
        return [
            f"{name}: {before[name]} then, {after[name]} now"
            for name in before
            if before[name] != after[name]
        ]


class Calibration(ContractModel):
    """The values to use for engine options that nobody set."""

    model: Name
    key: CalibrationKey
    measured_at: AwareDatetime
    threads: Annotated[int, Field(ge=1, le=256)]
    max_batch_sequences: Annotated[int, Field(ge=1, le=256)]
    prefill_chunk_tokens: Annotated[int, Field(ge=16, le=65_536)]
    unclear: Annotated[list[OptionName], Field(max_length=8)] = []
    """Options whose candidates did not separate in the time that there was; the better median was taken."""
    others_cpu_percent: Percent | None = None
    """Processor use of everything else meanwhile, of the whole machine; None where it cannot be read."""


class CandidateMeasured(ContractModel):
    """One value of an option: its cost relative to the best one, and what that means in plain figures."""

    value: PositiveInt
    cost_ratio: Annotated[float, Field(ge=0)]
    """Median over the rounds of its cost by the cost of the chosen value in the same round."""
    rounds: PositiveInt
    figures: dict[str, float]
    """Medians, unit in the name: decode_ms, prefill_tokens_per_s and the like."""


class OptionMeasured(ContractModel):
    """How one option was chosen."""

    option: OptionName
    chosen: PositiveInt
    is_clear: bool
    others_cpu_percent: Percent | None
    candidates: Annotated[list[CandidateMeasured], Field(min_length=1, max_length=64)]


class CalibrationReport(ContractModel):
    """A calibration and everything that it rests on."""

    calibration: Calibration
    options: list[OptionMeasured]
    duration_s: Annotated[float, Field(ge=0)]


class CalibrationStep(ContractModel):
    """A line of progress. spent_s of at most limit_s have passed."""

    kind: Literal["step"] = "step"
    message: Annotated[str, Field(max_length=500)]
    spent_s: Annotated[float, Field(ge=0)]
    limit_s: Annotated[float, Field(gt=0)]


class CalibrationFinished(ContractModel):
    """The last line when all went well. file: where the device agent keeps it, None before that."""

    kind: Literal["finished"] = "finished"
    report: CalibrationReport
    file: str | None = None


class CalibrationFailed(ContractModel):
    """The last line when it did not. is_usage: what was asked for is wrong, asking again changes nothing."""

    kind: Literal["failed"] = "failed"
    code: Name
    detail: str
    next_step: str
    is_usage: bool = False


CalibrationLine = Annotated[
    CalibrationStep | CalibrationFinished | CalibrationFailed, Field(discriminator="kind")
]
CALIBRATION_LINE: TypeAdapter[Any] = TypeAdapter(CalibrationLine)
"""Reads one line of a calibration's standard output."""
