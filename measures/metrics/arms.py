"""Samples to arms: a spread per metric over the trials that count. A trial's value is the median over
its calls or agents."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from contract.jobs import ArmMode
from contract.metrics import METRICS
from contract.rest import ArmReport, Spread
from measures.facts.attempt import AttemptFacts
from measures.metrics.samples import SampleValue
from measures.metrics.spread import spread_of


def trial_values(samples: Iterable[SampleValue], metric: str) -> dict[int, float]:
    """Trial to its value of the metric: the median over the trial's calls or agents."""
    values: dict[int, list[float]] = {}
    for sample in samples:
        if sample.metric == metric:
            values.setdefault(sample.trial, []).append(sample.value)
    return {trial: statistics.median(of_trial) for trial, of_trial in values.items()}


def metric_spreads(samples: Sequence[SampleValue]) -> dict[str, Spread]:
    """Metric to its spread over trials, in the catalogue's order; one without a value is left out."""
    values = {name: trial_values(samples, name) for name in METRICS}
    return {name: spread_of(of_trial.values()) for name, of_trial in values.items() if of_trial}


def agent_ttft_spreads(samples: Iterable[SampleValue]) -> dict[str, Spread]:
    """Agent to the spread of its TTFT over trials, in ms."""
    values: dict[str, list[float]] = {}
    for sample in samples:
        if sample.metric == "agent_ttft_ms" and sample.agent is not None:
            values.setdefault(sample.agent, []).append(sample.value)
    return {agent: spread_of(of_agent) for agent, of_agent in values.items()}


def arm_report(
    arm: str, mode: ArmMode, planned: int, facts: AttemptFacts, samples: Sequence[SampleValue]
) -> ArmReport:
    """Results of one arm. planned: measured trials that the attempt should have run; those that did not
    complete are failed, those that never began included."""
    measured = facts.measured(arm)
    counted = {trial.trial for trial in measured}
    own = [sample for sample in samples if sample.trial in counted]
    budget = facts.budgets.get(arm)
    return ArmReport(
        arm=arm,
        mode=mode,
        trials=planned,
        trials_failed=planned - sum(trial.completed for trial in measured),
        metrics=metric_spreads(own),
        agent_ttft_ms=agent_ttft_spreads(own),
        budget=budget.rows if budget else [],
    )


def medians_of(report: ArmReport) -> Mapping[str, float]:
    """Metric to its median."""
    return {name: spread.median for name, spread in report.metrics.items()}
