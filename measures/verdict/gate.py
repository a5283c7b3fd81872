"""The gate of a run: the worst over all its jobs, as one word, one exit code and one reason.

Each device is judged on its own. Nothing is said of a fleet: that takes three devices and one mean per device
(docs/adr/0021), and a device that disagrees is a finding, not noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from contract.failures import FAILURES, FailureReason, Fault
from contract.rest import GateRequest, GateView, MetricVerdict
from contract.states import GateExit, JobOutcome, RunOutcome
from measures.verdict.judge import Verdict, VerdictWord
from measures.verdict.metric_verdicts import verdict_view

GateWord = Literal[
    "pass", "regression", "usage", "inconclusive", "infrastructure", "cancelled", "no_capacity"
]

# Worst first: the first word that any gate metric has is the gate's. A confirmed regression stays one
# whatever else is missing. Below the failures the order is that of what is worth saying: any gain before
# "same".
EXIT_BY_VERDICT: dict[VerdictWord, GateExit] = {
    VerdictWord.REGRESSED: GateExit.REGRESSION,
    VerdictWord.NO_DATA: GateExit.INFRASTRUCTURE,
    VerdictWord.INCONCLUSIVE: GateExit.INCONCLUSIVE,
    VerdictWord.IMPROVED: GateExit.PASS,
    VerdictWord.SMALL_CHANGE: GateExit.PASS,
    VerdictWord.SAME: GateExit.PASS,
}


class GateOutcome(NamedTuple):
    """The gate's word and the exit code that goes with it."""

    verdict: VerdictWord
    exit_code: GateExit


def gate_outcome(verdicts: Sequence[Verdict]) -> GateOutcome:
    """Outcome over the verdicts of the gate's metrics; NO_DATA when there is not one."""
    words = {verdict.verdict for verdict in verdicts}
    for word, exit_code in EXIT_BY_VERDICT.items():
        if word in words:
            return GateOutcome(word, exit_code)
    return GateOutcome(VerdictWord.NO_DATA, EXIT_BY_VERDICT[VerdictWord.NO_DATA])


@dataclass(frozen=True, slots=True)
class JobStanding:
    """Where one job stands. place names its device and variant; outcome None while it goes on.

    verdicts: gate metric to verdict; empty before the first event and for a run of one arm.
    unanswered: why its events gave no result; empty when they did.
    """

    place: str
    outcome: JobOutcome | None
    reason: FailureReason | None = None
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    trials_failed: int = 0
    unanswered: str = ""


@dataclass(frozen=True, slots=True)
class _Ruling:
    verdict: GateWord
    exit_code: GateExit
    reason: str


def gate_view(jobs: Sequence[JobStanding], gate: GateRequest) -> GateView:
    """The gate over all jobs; `inconclusive` with the count of open jobs while any goes on."""
    ruling = _ruling(jobs)
    exit_code = ruling.exit_code
    if ruling.verdict == "inconclusive" and gate.inconclusive == "pass" and _all_done(jobs):
        exit_code = GateExit.PASS
    return GateView(
        verdict=ruling.verdict,
        exit_code=exit_code,
        reason=ruling.reason + _fleet_note(jobs),
        metrics=[_placed(job, name, verdict) for job in jobs for name, verdict in job.verdicts.items()],
    )


def run_outcome(jobs: Sequence[JobStanding]) -> RunOutcome:
    """How the run ended; every job must be done. A failed job is the workload's or the runtime's failure and
    is told apart from the lab's."""
    ruling = _ruling(jobs)
    if ruling.verdict in ("usage", "infrastructure") and any(
        job.outcome in (JobOutcome.FAILED, JobOutcome.TIMED_OUT) for job in jobs
    ):
        return RunOutcome.FAILED
    return _OUTCOME[ruling.verdict]


_OUTCOME: dict[GateWord, RunOutcome] = {
    "pass": RunOutcome.PASSED,
    "usage": RunOutcome.FAILED,
    "inconclusive": RunOutcome.INCONCLUSIVE,
    "regression": RunOutcome.REGRESSED,
    "infrastructure": RunOutcome.INFRA_ERROR,
    "cancelled": RunOutcome.CANCELLED,
    "no_capacity": RunOutcome.EXPIRED,
}


def _all_done(jobs: Sequence[JobStanding]) -> bool:
    return all(job.outcome is not None for job in jobs)


def _ruling(jobs: Sequence[JobStanding]) -> _Ruling:
    """First rule that applies. A confirmed regression stands whatever else is missing."""
    still_open = [job for job in jobs if job.outcome is None]
    if still_open:
        waiting = f"{len(still_open)} of {len(jobs)} jobs are not done; this is not the last word"
        return _Ruling("inconclusive", GateExit.INCONCLUSIVE, waiting)
    cancelled = _with_outcome(jobs, JobOutcome.CANCELLED)
    if cancelled:
        return _Ruling("cancelled", GateExit.CANCELLED, f"cancelled: {_places(cancelled)}")
    regressed = [job for job in jobs if _words(job) & {VerdictWord.REGRESSED}]
    if regressed:
        return _Ruling("regression", GateExit.REGRESSION, _reasons(regressed, VerdictWord.REGRESSED))
    expired = _with_outcome(jobs, JobOutcome.EXPIRED)
    if expired:
        return _Ruling(
            "no_capacity", GateExit.NO_CAPACITY, f"no device took it before its deadline: {_places(expired)}"
        )
    broken = [job for job in jobs if job.outcome is not JobOutcome.SUCCEEDED]
    if broken and all(_asked_for_too_much(job) for job in broken):
        return _Ruling("usage", GateExit.USAGE, f"{_failures(broken)}; {_advice(broken)}")
    if broken:
        return _Ruling("infrastructure", GateExit.INFRASTRUCTURE, f"not measured: {_failures(broken)}")
    unanswered = [f"{job.place}: {job.unanswered}" for job in jobs if job.unanswered]
    if unanswered:
        return _Ruling("infrastructure", GateExit.INFRASTRUCTURE, f"no result: {'; '.join(unanswered)}")
    return _measured(jobs)


def _measured(jobs: Sequence[JobStanding]) -> _Ruling:
    """All jobs succeeded: the verdicts decide."""
    pooled = [verdict for job in jobs for verdict in job.verdicts.values()]
    if not pooled:
        return _single_arm(jobs)
    outcome = gate_outcome(pooled)
    reason = _reasons(jobs, outcome.verdict)
    match outcome.exit_code:
        case GateExit.PASS:
            return _Ruling("pass", outcome.exit_code, reason)
        case GateExit.INCONCLUSIVE:
            return _Ruling("inconclusive", outcome.exit_code, reason)
        case _:
            return _Ruling("infrastructure", GateExit.INFRASTRUCTURE, reason)


def _single_arm(jobs: Sequence[JobStanding]) -> _Ruling:
    """No second arm: all that can be asked is that every trial completed."""
    failed = sum(job.trials_failed for job in jobs)
    if failed:
        return _Ruling("infrastructure", GateExit.INFRASTRUCTURE, f"{failed} trials did not complete")
    return _Ruling("pass", GateExit.PASS, "one arm, nothing to compare; every trial completed")


def _asked_for_too_much(job: JobStanding) -> bool:
    """The job itself is at fault: the same on a sound lab would fail again."""
    failed = job.outcome in (JobOutcome.FAILED, JobOutcome.TIMED_OUT)
    return failed and job.reason is not None and FAILURES[job.reason].fault is Fault.JOB


def _advice(jobs: Sequence[JobStanding]) -> str:
    return "; ".join(dict.fromkeys(FAILURES[job.reason].advice for job in jobs if job.reason is not None))


def _words(job: JobStanding) -> set[VerdictWord]:
    return {verdict.verdict for verdict in job.verdicts.values()}


def _with_outcome(jobs: Sequence[JobStanding], outcome: JobOutcome) -> list[JobStanding]:
    return [job for job in jobs if job.outcome is outcome]


def _places(jobs: Sequence[JobStanding]) -> str:
    return ", ".join(job.place for job in jobs)


def _failures(jobs: Sequence[JobStanding]) -> str:
    return ", ".join(
        f"{job.place} {job.outcome}" + (f" ({job.reason})" if job.reason else "") for job in jobs
    )


def _reasons(jobs: Sequence[JobStanding], word: VerdictWord) -> str:
    """What was said of each metric and device that has the word."""
    said = [
        f"{job.place}: {name} {verdict.verdict}: {verdict.reason}"
        for job in jobs
        for name, verdict in job.verdicts.items()
        if verdict.verdict is word
    ]
    return "; ".join(said)


def _fleet_note(jobs: Sequence[JobStanding]) -> str:
    judged = sum(bool(job.verdicts) for job in jobs)
    if judged < 2:
        return ""
    return f"; {judged} jobs judged one by one, the worst counts; no claim is made for the fleet"


def _placed(job: JobStanding, name: str, verdict: Verdict) -> MetricVerdict:
    view = verdict_view(name, verdict)
    return view.model_copy(update={"reason": f"{job.place}: {view.reason}"})
