"""From trials to verdicts: pairs of trial values, dropped where one is not to be trusted, then judged."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from contract.jobs import ArmSpec, TrialSpec
from contract.metrics import Better, MetricDefinition, metric
from contract.rest import GateRequest, MetricVerdict
from measures.errors import AnalysisInputError
from measures.facts.attempt import AttemptFacts, TrialFacts
from measures.metrics.arms import trial_values
from measures.metrics.samples import SampleValue
from measures.statistics.effect import Direction
from measures.verdict.judge import Assumptions, Verdict, VerdictWord, judge
from measures.verdict.pairs import Drops, Pair, PairArm, are_comparable

ShownWord = Literal["improved", "regressed", "same", "small_change", "inconclusive"]


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """What a run compares and how: its arms, the trials of each job, the gate and the seed of its tests."""

    arms: Sequence[ArmSpec]
    baseline: str
    candidate: str
    trials: Sequence[TrialSpec]
    gate: GateRequest
    seed: int
    is_soak: bool = False
    """The workload repeats for a fixed time: its footprint is to stay flat."""

    @property
    def compares(self) -> bool:
        """False for a run of one arm: there is nothing to compare it with."""
        return self.baseline != self.candidate

    def floor_percent(self, name: str) -> float:
        """The run's own floor for the metric, else the catalogue's."""
        return self.gate.floor_percent.get(name, metric(name).floor_percent)


@dataclass(frozen=True, slots=True)
class Measured:
    """What an attempt left behind. ended: no more events will come.

    unanswered: why nothing can be said of it; empty when something can.
    """

    facts: AttemptFacts
    samples: Sequence[SampleValue]
    ended: bool
    unanswered: str = ""


def can_gate(definition: MetricDefinition) -> bool:
    """Whether log ratios of the metric mean anything: it has a direction, and is not a count or share."""
    return definition.better is not Better.NONE and definition.unit not in ("count", "ratio")


def verdicts(plan: ComparisonPlan, measured: Measured) -> dict[str, Verdict]:
    """Gate metric to its verdict on this device; empty for a run of one arm."""
    if not plan.compares:
        return {}
    return {name: _verdict(name, plan, measured) for name in dict.fromkeys(plan.gate.metrics)}


def _verdict(name: str, plan: ComparisonPlan, measured: Measured) -> Verdict:
    direction, floor_percent = Direction(metric(name).better), plan.floor_percent(name)
    problem = measured.unanswered
    if not problem:
        pairs = metric_pairs(name, plan, measured)
        try:
            verdict = judge(pairs, direction, floor_percent, plan.gate.alpha, Assumptions(seed=plan.seed))
            if verdict.verdict is VerdictWord.NO_DATA and _was_measured(name, plan, measured):
                # Nobody's fault: the metric has no ratio, for instance because it is 0.
                return replace(verdict, verdict=VerdictWord.INCONCLUSIVE)
            return verdict
        except AnalysisInputError as error:
            # A request that an earlier version took: today's bounds refuse it (contract/bounds.py).
            problem = str(error)
    return Verdict(
        VerdictWord.NO_DATA,
        f"no verdict: {problem}",
        direction,
        floor_percent,
        plan.gate.alpha,
        pairs_used=0,
        pairs_dropped=0,
        drops=Drops(0, 0, 0, 0),
    )


def _was_measured(name: str, plan: ComparisonPlan, measured: Measured) -> bool:
    """Whether every trial of every pair went as it should and has a value."""
    valued = trial_values(measured.samples, name)
    sound = {trial.trial for trial in measured.facts.trials if trial.trial in valued and not _unsound(trial)}
    return all(trial.trial in sound for sides in _planned_pairs(plan).values() for trial in sides.values())


def metric_pairs(name: str, plan: ComparisonPlan, measured: Measured) -> list[Pair]:
    """The plan's pairs, each with both values or the reason why it is dropped and on whose account.

    While the attempt runs, only the pairs whose two trials have ended.
    """
    values = trial_values(measured.samples, name)
    trials = {trial.trial: trial for trial in measured.facts.trials}
    pairs = []
    for number, sides in _planned_pairs(plan).items():
        both = {arm: trials.get(planned.trial) for arm, planned in sides.items()}
        finished = all(trial is not None and trial.finished_ns is not None for trial in both.values())
        if measured.ended or finished:
            pairs.append(_pair(str(number), both, values))
    return pairs


def _planned_pairs(plan: ComparisonPlan) -> dict[int, dict[PairArm, TrialSpec]]:
    side = {plan.baseline: PairArm.BASELINE, plan.candidate: PairArm.CANDIDATE}
    pairs: dict[int, dict[PairArm, TrialSpec]] = {}
    for planned in plan.trials:
        if planned.pair is not None and planned.arm in side:
            pairs.setdefault(planned.pair, {})[side[planned.arm]] = planned
    return pairs


def _pair(pair_id: str, both: Mapping[PairArm, TrialFacts | None], values: Mapping[int, float]) -> Pair:
    found = {arm: values.get(trial.trial) if trial else None for arm, trial in both.items()}
    spoiled = {arm: _spoiled(trial, found[arm]) for arm, trial in both.items()}
    if not any(spoiled.values()) and not are_comparable(*found.values()):
        spoiled = {arm: f"{value:g} is too far from the other arm's" for arm, value in found.items()}
    reasons = [f"{arm}: {spoiled[arm]}" for arm in PairArm if spoiled.get(arm)]
    return Pair(
        pair_id,
        found.get(PairArm.BASELINE),
        found.get(PairArm.CANDIDATE),
        dropped_reason="; ".join(reasons) or None,
        dropped_arms=frozenset(arm for arm, reason in spoiled.items() if reason),
    )


def _spoiled(trial: TrialFacts | None, value: float | None) -> str:
    """Why the trial cannot stand in a pair; empty when it can."""
    if trial is None:
        return "the trial never ran"
    unsound = _unsound(trial)
    if unsound:
        return unsound
    if value is None:
        return "the metric was not measured"
    return f"{value:g} has no log ratio" if value <= 0 else ""


def _unsound(trial: TrialFacts) -> str:
    """Why nothing that was measured in the trial counts; empty when it does."""
    if not trial.completed:
        return f"the trial {trial.status}" + (f" ({trial.reason})" if trial.reason else "")
    if trial.above_nominal:
        return f"thermal state {trial.conditions.thermal_state}"
    if trial.conditions.low_power_mode:
        return "low-power mode was on"
    return ""


_SHOWN: dict[VerdictWord, ShownWord] = {
    VerdictWord.IMPROVED: "improved",
    VerdictWord.REGRESSED: "regressed",
    VerdictWord.SAME: "same",
    VerdictWord.SMALL_CHANGE: "small_change",
    VerdictWord.INCONCLUSIVE: "inconclusive",
    VerdictWord.NO_DATA: "inconclusive",
}


def verdict_view(name: str, verdict: Verdict) -> MetricVerdict:
    """The verdict as REST shows it. `no_data` is shown as inconclusive; the gate tells them apart."""
    percent = verdict.statistic_percent
    statistic = None if percent is None else math.log1p(percent / 100.0)
    drops = ""
    if verdict.pairs_dropped:
        drops = (
            f"; {verdict.pairs_dropped} pairs dropped "
            f"({verdict.drops.baseline} by the baseline, {verdict.drops.candidate} by the candidate)"
        )
    return MetricVerdict(
        metric=name,
        verdict=_SHOWN[verdict.verdict],
        change_percent=verdict.statistic_percent,
        interval_percent=verdict.interval_percent,
        interval_confidence=verdict.interval_confidence,
        statistic=statistic,
        p_value=verdict.p_value,
        pairs=verdict.pairs_used,
        pairs_dropped=verdict.pairs_dropped,
        mde_percent=verdict.mde_percent,
        floor_percent=verdict.floor_percent,
        reason=verdict.reason + drops,
    )
