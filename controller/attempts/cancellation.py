"""Cancelling: at once for a job that waits, through the agent for one that runs."""

from contract.states import JobState
from controller.attempts.apply import move_job
from controller.attempts.conclusion import settle_run
from controller.attempts.states import JOB_MACHINE, JobCause
from controller.attempts.unit_of_work import UnitOfWork
from controller.db.models import JobRow
from controller.db.runs import JobRepository, RunRepository


def cancel_run(work: UnitOfWork, run_id: str) -> int:
    """Cancel every job that is not done; returns how many. Again is no error. RunNotFoundError."""
    RunRepository(work.session).get(run_id)
    cancelled = 0
    for job in JobRepository(work.session).of_runs([run_id]):
        cancelled += cancel_job(work, job.job_id)
    return cancelled


def cancel_job(work: UnitOfWork, job_id: str) -> bool:
    """True when this call cancelled it, False when it was done or being cancelled. JobNotFoundError."""
    job: JobRow = JobRepository(work.session).get_locked(job_id)
    if not JOB_MACHINE.allows(job.state, JobCause.CANCEL_REQUESTED):
        return False
    move_job(work, job, JobCause.CANCEL_REQUESTED)
    if job.state is JobState.DONE:
        settle_run(work, job.run_id)
    return True
