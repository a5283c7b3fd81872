"""The end of a run: finishing when its last job is done, completed when analysis has spoken."""

from typing import Any

from sqlalchemy import select

from contract.states import JobState, RunOutcome, RunState
from controller.attempts.apply import move_run
from controller.attempts.states import RunCause
from controller.attempts.unit_of_work import UnitOfWork
from controller.db.models import JobRow, RunRow
from controller.db.runs import RunRepository


def settle_run(work: UnitOfWork, run_id: str) -> None:
    """Let the run finish if its last job is done; nothing happens otherwise, or when it already has."""
    work.session.flush()
    # The lock comes before the look: of two jobs that end at once, one must see the other.
    run = RunRepository(work.session).get_locked(run_id)
    open_job = work.session.scalar(
        select(JobRow.job_id).where(JobRow.run_id == run_id, JobRow.state != JobState.DONE).limit(1)
    )
    if run.state is RunState.ACTIVE and open_job is None:
        move_run(work, run, RunCause.JOBS_DONE)


def conclude_run(work: UnitOfWork, run_id: str, outcome: RunOutcome, gate: dict[str, Any]) -> RunRow:
    """Give a finishing run its verdict, for good; InvalidTransitionError unless it is finishing.

    Compute outcome and gate in the same unit of work, after RunRepository.get_locked: a late result may
    change a job until the run is completed. `gate` is the GateView as JSON.
    """
    run = RunRepository(work.session).get_locked(run_id)
    move_run(work, run, RunCause.CONCLUDED, outcome)
    run.gate = gate
    return run
