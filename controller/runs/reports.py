"""A run's report and gate, and its end: put together from its jobs' results whenever they are asked for.

Nothing here waits for a background task: where a task has not been, its work is done on the spot.
"""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from contract.rest import GateView, RunReport
from contract.states import JobState, RunState
from controller.db.attempts import AttemptRepository
from controller.db.models import AttemptRow, JobRow, RunRow
from controller.db.runs import JobRepository, RunRepository
from controller.db.session import read_only
from controller.protocol.endings import conclude_run, settle_run
from controller.runs.errors import ResultNotReadyError
from controller.runs.results import JobResult, authoritative_attempt, result_of, stored_gate, summarise
from controller.runs.run_context import RunContext
from measures.verdict.gate import JobStanding, gate_view, run_outcome


def report_url(base_url: str, run_id: str) -> str:
    """Where a person reads the run's report."""
    return f"{base_url}/dashboard/runs/{run_id}"


def run_report(session: Session, run_id: str, base_url: str) -> RunReport:
    """All results of a run so far; a job without an attempt has no device and is told of in the gate."""
    run = RunRepository(session).get(run_id)
    jobs = JobRepository(session).of_runs([run_id])
    results = _results(session, run, jobs)
    request = run.request
    return RunReport(
        run_id=run.run_id,
        workload=run.workload,
        model=run.model,
        state=run.state,
        outcome=run.outcome,
        baseline=request["baseline"],
        candidate=request["candidate"],
        devices=[result.report for _, _, result in results if result is not None],
        gate=kept_gate(run) or gate_view(_standings(results), stored_gate(run)),
        report_url=report_url(base_url, run_id),
    )


def run_gate(session: Session, run_id: str) -> GateView:
    """The gate of a completed run; ResultNotReadyError before."""
    gate = kept_gate(RunRepository(session).get(run_id))
    if gate is None:
        raise ResultNotReadyError(run_id, "gate")
    return gate


def kept_gate(run: RunRow) -> GateView | None:
    """The gate that was kept when the run was completed."""
    return GateView.model_validate(run.gate) if run.gate is not None else None


def conclude_if_due(context: RunContext, run_id: str) -> bool:
    """Complete the run if all its jobs are done; returns whether it is completed now. Safe to repeat.

    The summaries come first and on their own, so that the last transaction is short.
    """
    with read_only(context.sessions) as session:
        run = RunRepository(session).get(run_id)
        if run.state is RunState.COMPLETED:
            return True
        jobs = JobRepository(session).of_runs([run_id])
        if any(job.state is not JobState.DONE for job in jobs):
            return False
        speaking = [attempt for _, attempt in _speaking(session, jobs) if attempt is not None]
    for attempt in speaking:
        if attempt.ended_at is not None:
            summarise(context, attempt.attempt_id)
    with context.unit_of_work() as work:
        settle_run(work, run_id)
        run = RunRepository(work.session).get_locked(run_id)
        if run.state is RunState.FINISHING:
            standings = _standings(_results(work.session, run, JobRepository(work.session).of_runs([run_id])))
            gate = gate_view(standings, stored_gate(run))
            conclude_run(work, run_id, run_outcome(standings), gate.model_dump(mode="json"))
        return run.state is RunState.COMPLETED


JobWithResult = tuple[JobRow, AttemptRow | None, JobResult | None]


def _speaking(session: Session, jobs: Sequence[JobRow]) -> list[tuple[JobRow, AttemptRow | None]]:
    attempts: dict[str, list[AttemptRow]] = {}
    for attempt in AttemptRepository(session).of_jobs([job.job_id for job in jobs]):
        attempts.setdefault(attempt.job_id, []).append(attempt)
    return [(job, authoritative_attempt(attempts.get(job.job_id, []))) for job in jobs]


def _results(session: Session, run: RunRow, jobs: Sequence[JobRow]) -> list[JobWithResult]:
    return [
        (job, attempt, result_of(session, run, job, attempt) if attempt is not None else None)
        for job, attempt in _speaking(session, jobs)
    ]


def _standings(results: Sequence[JobWithResult]) -> list[JobStanding]:
    return [_standing(job, attempt, result) for job, attempt, result in results]


def _standing(job: JobRow, attempt: AttemptRow | None, result: JobResult | None) -> JobStanding:
    place = attempt.device_id if attempt is not None else job.job_id
    return JobStanding(
        place=f"{place} [{job.variant}]" if job.variant else place,
        outcome=job.outcome,
        reason=attempt.reason if attempt is not None else None,
        verdicts=result.verdicts if result is not None else {},
        trials_failed=result.trials_failed if result is not None else 0,
        unanswered=result.unanswered if result is not None else "",
    )
