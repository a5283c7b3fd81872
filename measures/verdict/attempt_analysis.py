"""One attempt's events through facts, samples, verdicts and report.

What breaks on the way becomes a report that says so, never an exception: one run must not
keep the others from their results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contract.events import EventLineError
from contract.failures import FailureReason
from contract.rest import DeviceReportView
from measures.facts.attempt import AttemptEvents, AttemptFacts, FailureNote, ImpossibleEventsError
from measures.facts.reader import attempt_facts
from measures.metrics.samples import SampleValue, samples_of
from measures.verdict.device_report import DeviceIdentity, device_report
from measures.verdict.judge import Verdict
from measures.verdict.metric_verdicts import ComparisonPlan, Measured, verdicts

_NOTHING: Final = AttemptFacts(opened_ns=None, conditions=None, budgets={}, trials=())


@dataclass(frozen=True, slots=True)
class AttemptAnalysis:
    """unanswered: why there is no result; empty when there is one."""

    report: DeviceReportView
    verdicts: Mapping[str, Verdict]
    samples: Sequence[SampleValue]
    unanswered: str = ""


def analyse(
    identity: DeviceIdentity,
    plan: ComparisonPlan,
    events: AttemptEvents,
    failure: FailureNote | None,
    *,
    ended: bool,
) -> AttemptAnalysis:
    """failure: what the attempt itself ended with. ended: no more events will come."""
    try:
        facts = attempt_facts(events)
        _check_planned(facts, plan)
        samples = [sample for trial in facts.trials for sample in samples_of(trial)]
        return _answer(identity, plan, Measured(facts, samples, ended), failure)
    except (EventLineError, ImpossibleEventsError) as error:
        note = FailureNote(FailureReason.EVENTS_INVALID, str(error))
    except Exception as error:
        note = FailureNote(FailureReason.ANALYSIS_FAILED, f"{type(error).__name__}: {error}")
    # A report without a figure, whose verdicts and failures say why.
    return _answer(identity, plan, Measured(_NOTHING, (), ended, unanswered=note.detail), note)


def _check_planned(facts: AttemptFacts, plan: ComparisonPlan) -> None:
    """Numbers of trials and pairs come from outside: only those that were planned are looked at."""
    planned = {trial.trial: (trial.arm, trial.pair, trial.warmup) for trial in plan.trials}
    for trial in facts.trials:
        if planned.get(trial.trial) != (trial.arm, trial.pair, trial.warmup):
            raise ImpossibleEventsError(
                f"trial {trial.trial} (arm {trial.arm}, pair {trial.pair}) is not one that was planned"
            )


def _answer(
    identity: DeviceIdentity, plan: ComparisonPlan, measured: Measured, failure: FailureNote | None
) -> AttemptAnalysis:
    found = verdicts(plan, measured)
    report = device_report(identity, plan, measured, found, failure)
    return AttemptAnalysis(report, found, measured.samples, measured.unanswered)
