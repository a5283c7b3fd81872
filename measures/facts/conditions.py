"""Under what each trial was measured: heat, charge, low-power mode; and what a reader must know."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from contract.events import BatterySampled, Conditions, Event, ThermalSampled
from measures.facts.attempt import THERMAL_ORDER, TrialConditions, TrialFacts

_Sample = ThermalSampled | BatterySampled
_Kind = TypeVar("_Kind", bound=ThermalSampled | BatterySampled)


@dataclass(slots=True)
class ConditionReader:
    """Samples of heat and battery, of the runtime by their time and of the device agent by their trial."""

    timed: list[_Sample] = field(default_factory=list)
    named: list[_Sample] = field(default_factory=list)

    def runtime(self, event: Event) -> None:
        """An event of the runtime's samples; others than heat and battery are left alone."""
        if isinstance(event, _Sample):
            self.timed.append(event)

    def agent(self, event: Event) -> None:
        """An event of the agent's stream: its clock is another, so only the trial that it names places it."""
        if isinstance(event, _Sample) and event.trial is not None:
            self.named.append(event)

    def of_trial(
        self, trial: int, start_ns: int, end_ns: int | None, recorded: Conditions | None
    ) -> TrialConditions:
        """The conditions between the last sample before the start and the end.

        Charging and low-power mode fall back on what was recorded at the attempt's start.
        """
        named = [event for event in self.named if event.trial == trial]
        thermal = [*_around(self.timed, ThermalSampled, start_ns, end_ns), *_only(named, ThermalSampled)]
        battery = [*_around(self.timed, BatterySampled, start_ns, end_ns), *_only(named, BatterySampled)]
        charging = {sample.charging for sample in battery}
        low_power = [each.low_power_mode for each in battery if each.low_power_mode is not None]
        if not battery and recorded is not None and recorded.charging is not None:
            charging = {recorded.charging}
        if not low_power and recorded is not None and recorded.low_power_mode is not None:
            low_power = [recorded.low_power_mode]
        return TrialConditions(
            thermal_state=max((each.state for each in thermal), key=THERMAL_ORDER.index, default="unknown"),
            battery_percent=min((each.level_percent for each in battery), default=None),
            charging=charging.pop() if len(charging) == 1 else None,
            low_power_mode=any(low_power) if low_power else None,
        )


def _only(samples: Iterable[_Sample], kind: type[_Kind]) -> list[_Kind]:
    return [sample for sample in samples if isinstance(sample, kind)]


def _around(samples: Iterable[_Sample], kind: type[_Kind], start_ns: int, end_ns: int | None) -> list[_Kind]:
    """The last one before the start, and those until the end."""
    found = _only(samples, kind)
    earlier = [sample for sample in found if sample.t_mono_ns <= start_ns]
    within = [sample for sample in found if start_ns < sample.t_mono_ns and not _is_past(sample, end_ns)]
    return [*earlier[-1:], *within]


def _is_past(sample: _Sample, end_ns: int | None) -> bool:
    return end_ns is not None and sample.t_mono_ns > end_ns


def condition_flags(trials: Sequence[TrialFacts]) -> list[str]:
    """Sentences on measured trials whose conditions were not those of the others; empty when all is even."""
    counted = [trial for trial in trials if not trial.warmup]
    flags = []
    for state in THERMAL_ORDER[THERMAL_ORDER.index("nominal") + 1 :]:
        warm = [trial for trial in counted if trial.conditions.thermal_state == state]
        if warm:
            flags.append(f"Heat: {_named(warm)} at thermal state {state}; such pairs count in no verdict.")
    saving = [trial for trial in counted if trial.conditions.low_power_mode]
    if saving:
        flags.append(f"Low-power mode was on: {_named(saving)} under it; such pairs count in no verdict.")
    plugged, unplugged = (
        [trial for trial in counted if trial.conditions.charging is charging] for charging in (True, False)
    )
    if plugged and unplugged:
        flags.append(f"Charging changed: {_named(unplugged)} on battery, the others while charging.")
    return flags


def _named(trials: Sequence[TrialFacts]) -> str:
    numbers = [str(trial.trial) for trial in trials]
    if len(numbers) == 1:
        return f"trial {numbers[0]} ran"
    return f"trials {', '.join(numbers[:-1])} and {numbers[-1]} ran"
