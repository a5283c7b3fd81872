"""Which calibration of its device an arm gets, when it leaves something open. Pure."""

from collections.abc import Sequence

from contract.calibration import CALIBRATED_OPTIONS, Calibration
from contract.ids import Name
from contract.jobs import ArmSpec, EngineOptions


def calibrations_for(
    arms: Sequence[ArmSpec], model: Name, calibrations: Sequence[Calibration]
) -> dict[Name, Calibration]:
    """Per arm the newest calibration for the model that its options admit; an arm without one is left out.

    What `auto` comes to is known on the device alone, so the runtime checks the key of what it is given.
    """
    of_model = [each for each in calibrations if each.model == model]
    chosen = {}
    for arm in arms:
        fitting = [each for each in of_model if _admits(arm.engine, each)]
        if fitting and any(getattr(arm.engine, name) is None for name in CALIBRATED_OPTIONS):
            chosen[arm.arm] = max(fitting, key=lambda each: each.measured_at)
    return chosen


def _admits(engine: EngineOptions, calibration: Calibration) -> bool:
    key = calibration.key
    return (
        engine.device in ("auto", key.device)
        and engine.tier in ("auto", key.tier)
        and engine.dtype in ("auto", key.dtype)
        and engine.weight_dtype == key.weight_dtype
    )
