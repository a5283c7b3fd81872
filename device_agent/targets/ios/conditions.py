"""Heat, battery, low-power mode and screen as rungs of the ladder: policy.py decides, this translates."""

from types import MappingProxyType
from typing import Final

from contract.device_reasons import BATTERY_REASONS, HEAT_REASONS, PASSING_REASONS, DeviceReason
from device_agent.ios_worker.protocol import Conditions
from device_agent.targets.ios import ladder
from device_agent.targets.ios.ladder import Rung, Standing, Step
from device_agent.targets.ios.policy import ConditionReading, Gate

_RUNGS: Final = MappingProxyType(
    {
        **dict.fromkeys(HEAT_REASONS, Rung.THERMAL),
        **dict.fromkeys(BATTERY_REASONS, Rung.BATTERY),
        DeviceReason.LOW_POWER_MODE.value: Rung.LOW_POWER,
    }
)
_WAITING: Final = PASSING_REASONS | HEAT_REASONS | BATTERY_REASONS


def reading_of(found: Conditions, read_s: float) -> ConditionReading:
    """What the policy judges; read_s: monotonic seconds of the agent."""
    return ConditionReading(
        read_s=read_s,
        thermal=found.thermal,
        battery_percent=found.battery_percent,
        charging=found.charging,
        temperature_celsius=found.temperature_celsius,
        low_power_mode=found.low_power_mode,
    )


def gate_steps(gate: Gate) -> list[Step]:
    """One step for each obstacle, and a passed one for each rung without."""
    steps = [
        Step(
            _RUNGS.get(reason, Rung.CONDITIONS),
            Standing.WAITING if reason in _WAITING else Standing.BLOCKED,
            advice,
            reason,
        )
        for reason, advice in zip(gate.reasons, gate.advice, strict=True)
    ]
    seen = {step.rung for step in steps}
    return [
        *steps,
        *(ladder.passed(rung) for rung in (Rung.BATTERY, Rung.THERMAL, Rung.LOW_POWER) if rung not in seen),
    ]
