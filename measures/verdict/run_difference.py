"""Two runs side by side. They were not measured in pairs, so there is a change and a spread but no verdict.

What was measured under other conditions is refused unless it is asked for, and then named.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contract.rest import Comparison, DeviceReportView, Spread
from measures.metrics.change import change_percent

MIN_TRIALS: Final = 4

# Another device, system, model or workload: the figures are not of the same thing.
_REFUSED = ("device_model", "os_name", "os_version", "os_build", "model_digest", "workload_digest", "virtual")
# May be what the person wants to compare; named, not refused.
_NAMED = (
    *("runtime_name", "runtime_version", "tier", "dtype", "threads", "model_name"),
    *("device", "weight_dtype", "max_batch_sequences", "prefill_chunk_tokens", "block_tokens"),
    *("low_power_mode", "thermal_state", "charging", "cpu", "cores", "memory_bytes"),
)


# Of the arm that is compared: what was asked for, calibrated or taken by default makes no difference.
_OF_THE_ARM = (
    *("device", "tier", "dtype", "weight_dtype", "threads"),
    *("max_batch_sequences", "prefill_chunk_tokens", "block_tokens"),
)


@dataclass(frozen=True, slots=True)
class RunSide:
    """One of the two: the run, its compiled workload's digest, and its report on the device compared."""

    run_id: str
    workload_digest: str
    report: DeviceReportView
    workload: Mapping[str, Any] = field(default_factory=dict)
    """Name and parameters as they were asked for; what was left out had the workload's default."""

    @property
    def conditions(self) -> dict[str, Any]:
        """What was recorded, and what else decides whether two results are of the same thing."""
        recorded = self.report.conditions
        return {
            **(recorded.model_dump(mode="json") if recorded is not None else {}),
            "device_model": self.report.device_model,
            "os_version": self.report.os_version,
            "virtual": self.report.virtual,
            "workload_digest": self.workload_digest,
        }

    def arm_options(self, arm: str) -> dict[str, Any]:
        """What this arm ran with; empty where the runtime did not tell it arm by arm."""
        recorded = self.report.conditions
        own = recorded.arms.get(arm) if recorded is not None else None
        return own.model_dump(include=set(_OF_THE_ARM), exclude_unset=True) if own is not None else {}


def obstacles(baseline: RunSide, run: RunSide) -> list[str]:
    """Why the two should not be compared; empty when nothing stands against it."""
    return [
        *_differences(baseline.conditions, run.conditions, _REFUSED),
        *_workload_differences(baseline, run),
    ]


def _workload_differences(baseline: RunSide, run: RunSide) -> list[str]:
    """What was asked for differently, by name: two digests tell nobody what to change."""
    if baseline.workload_digest == run.workload_digest:
        return []
    names = sorted({*baseline.workload, *run.workload})
    before, after = (
        {name: side.workload.get(name, "left to the default") for name in names} for side in (baseline, run)
    )
    return [f"workload's {each}" for each in _differences(before, after, tuple(names))]


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    return [
        f"{name}: {before.get(name)} and {after.get(name)}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def compare(baseline: RunSide, run: RunSide, arm: str) -> Comparison:
    """Spreads of the arm's metrics that both have, and the change of the medians in percent of the baseline.

    A baseline median of 0, or next to nothing beside the other, has no percentage.
    """
    before, after = baseline.report.arms[arm].metrics, run.report.arms[arm].metrics
    shared = [name for name in before if name in after]
    # In place of the first arm's, where both runtimes tell them: silence is not a difference.
    options = [side.arm_options(arm) for side in (baseline, run)]
    own = options if all(options) else [{}, {}]
    return Comparison(
        run_id=run.run_id,
        baseline_run_id=baseline.run_id,
        arm=arm,
        differs=[
            *_differences(baseline.conditions | own[0], run.conditions | own[1], _REFUSED + _NAMED),
            *_workload_differences(baseline, run),
        ],
        metrics={name: (before[name], after[name]) for name in shared},
        change_percent={
            name: percent
            for name in shared
            if (percent := change_percent(before[name].median, after[name].median)) is not None
        },
        beyond_noise={name: _are_apart(before[name], after[name]) for name in shared},
        note=(
            f"Medians on {run.report.device_model}. There is no verdict across runs: differences are "
            "shown, not judged. The two were not measured in pairs: heat, charge and load may differ. For a "
            "verdict, put both into one run as two arms."
        ),
    )


def _are_apart(before: Spread, after: Spread) -> bool | None:
    """Whether not one trial of one run lies within the range of the other.

    Of two equal sets of four, that happens once in 35 times by chance; of fewer, too often to say anything.
    """
    if min(before.n, after.n) < MIN_TRIALS:
        return None
    return before.max < after.min or after.max < before.min
