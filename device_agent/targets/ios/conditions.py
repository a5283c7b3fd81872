"""Heat, battery, low-power mode and screen as preflight steps: policy.py decides, this translates."""

from types import MappingProxyType
from typing import Final

from contract.device_reasons import BATTERY_REASONS, HEAT_REASONS, PASSING_REASONS, DeviceReason
from device_agent.ios_worker.protocol import Conditions
from device_agent.targets.ios import preflight_steps
from device_agent.targets.ios.policy import ConditionReading, Gate
from device_agent.targets.ios.preflight_steps import PreflightStep, SeenStep, StepState

_STEPS: Final = MappingProxyType(
    {
        **dict.fromkeys(HEAT_REASONS, PreflightStep.THERMAL),
        **dict.fromkeys(BATTERY_REASONS, PreflightStep.BATTERY),
        DeviceReason.LOW_POWER_MODE.value: PreflightStep.LOW_POWER,
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


def gate_steps(gate: Gate) -> list[SeenStep]:
    """One step for each obstacle, and a passed one for each of the three without one."""
    steps = [
        SeenStep(
            _STEPS.get(reason, PreflightStep.CONDITIONS),
            StepState.WAITING if reason in _WAITING else StepState.BLOCKED,
            advice,
            reason,
        )
        for reason, advice in zip(gate.reasons, gate.advice, strict=True)
    ]
    seen = {step.name for step in steps}
    return [
        *steps,
        *(
            preflight_steps.passed(name)
            for name in (PreflightStep.BATTERY, PreflightStep.THERMAL, PreflightStep.LOW_POWER)
            if name not in seen
        ),
    ]
