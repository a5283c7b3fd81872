"""Engine options that nobody set: the calibrated values of the device where they hold, else defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from contract.calibration import CALIBRATED_OPTIONS, Calibration, CalibrationKey, OptionName
from contract.jobs import ArmMode, ArmSpec, EngineOptions

Origin = Literal["asked", "calibrated", "default"]

DEFAULT_BATCH_SEQUENCES: Final = 8
DEFAULT_PREFILL_CHUNK_TOKENS: Final = 512
_DEFAULT_CHUNK_TOKENS_BY_TIER: Final = {"native": 256}
"""Its products are as fast with half of the rows, which leave 8 MB less behind."""


@dataclass(frozen=True, slots=True)
class ArmSetup:
    """An arm with every option decided. ignored: why none of the calibrated values is used."""

    spec: ArmSpec
    threads: int
    max_batch_sequences: int
    prefill_chunk_tokens: int
    origins: Mapping[OptionName, Origin]
    calibration: Calibration | None = None
    ignored: str = ""

    @property
    def mode(self) -> ArmMode:
        return self.spec.mode

    @property
    def engine(self) -> EngineOptions:
        """As asked; the options that this class has too may be None in there."""
        return self.spec.engine

    def as_conditions(self) -> dict[str, Any]:
        """What was used and where each value came from, for the conditions."""
        return {
            "threads": self.threads,
            "max_batch_sequences": self.max_batch_sequences,
            "prefill_chunk_tokens": self.prefill_chunk_tokens,
            "option_origins": dict(self.origins),
            "calibrated_at": None if self.calibration is None else self.calibration.measured_at,
            "calibration_ignored": self.ignored,
        }


def decide_options(arm: ArmSpec, here: CalibrationKey, calibration: Calibration | None = None) -> ArmSetup:
    """What was asked for, then what was calibrated, then the default.

    A calibration that was made under another key is ignored as a whole: its values belong together.
    """
    differences = calibration.key.differences(here) if calibration is not None else []
    holds = calibration is not None and not differences
    values: dict[OptionName, int] = {
        "threads": here.cores,
        "max_batch_sequences": DEFAULT_BATCH_SEQUENCES,
        "prefill_chunk_tokens": _DEFAULT_CHUNK_TOKENS_BY_TIER.get(here.tier, DEFAULT_PREFILL_CHUNK_TOKENS),
    }
    origins: dict[OptionName, Origin] = {}
    for name in CALIBRATED_OPTIONS:
        asked: int | None = getattr(arm.engine, name)
        if asked is not None:
            values[name], origins[name] = asked, "asked"
        elif holds:
            values[name], origins[name] = getattr(calibration, name), "calibrated"
        else:
            origins[name] = "default"
    return ArmSetup(
        spec=arm,
        threads=values["threads"],
        max_batch_sequences=values["max_batch_sequences"],
        prefill_chunk_tokens=values["prefill_chunk_tokens"],
        origins=origins,
        calibration=calibration,
        ignored="; ".join(differences) if "default" in origins.values() else "",
    )
