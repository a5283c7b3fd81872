"""Renewals keep a lease, report the phase, and carry a cancel back. Source: service.md 8.5, 4 to 6."""

from typing import Final, Literal

from contract.agent_api import RenewAnswer, RenewRequest
from contract.states import AttemptState, JobState
from controller.attempts.apply import move_attempt, move_job
from controller.attempts.expiry import expire_overdue
from controller.attempts.presence import touch_agent
from controller.attempts.states import ATTEMPT_MACHINE, AttemptCause, JobCause
from controller.attempts.unit_of_work import UnitOfWork
from controller.db.attempts import AttemptRepository, LeaseRepository
from controller.db.models import AttemptRow, JobRow
from controller.db.runs import JobRepository
from controller.errors import FencedError, LeaseGoneError

_CAUSE_OF_PHASE: Final = {
    "preparing": AttemptCause.ACCEPTED,
    "running": AttemptCause.RUNNING_REPORTED,
    "uploading": AttemptCause.UPLOADING_REPORTED,
}


def renew(work: UnitOfWork, device_agent_id: str, lease_id: str, request: RenewRequest) -> RenewAnswer:
    """A full ttl from now; LeaseGoneError once the lease has ended, FencedError for another's fence."""
    touch_agent(work, device_agent_id)
    expire_overdue(work)
    lease = LeaseRepository(work.session).find(lease_id)
    if lease is None or lease.device_agent_id != device_agent_id or lease.released_at is not None:
        raise LeaseGoneError(lease_id)
    if request.fence != lease.fence:
        raise FencedError(request.fence, lease.fence)
    lease.renewed_at = work.now
    lease.expires_at = work.now + work.times.lease_ttl
    attempt = AttemptRepository(work.session).get_locked(lease.attempt_id)
    job = JobRepository(work.session).get_locked(attempt.job_id)
    _report_phase(work, attempt, job, _CAUSE_OF_PHASE[request.phase])
    attempt.trials_done = min(max(attempt.trials_done, request.trials_done), attempt.trials_total)
    return RenewAnswer(
        server_time=work.now,
        ttl_s=work.times.lease_ttl_s,
        renew_interval_s=work.times.renew_interval_s,
        margin_s=work.times.margin_s,
        directive=directive_of(job),
    )


def directive_of(job: JobRow) -> Literal["continue", "cancel"]:
    """What the agent shall do with the job's attempt."""
    return "cancel" if job.state is JobState.CANCELLING else "continue"


def _report_phase(work: UnitOfWork, attempt: AttemptRow, job: JobRow, cause: AttemptCause) -> None:
    """A phase that has already passed comes from a late or repeated call and changes nothing."""
    if not ATTEMPT_MACHINE.allows(attempt.state, cause):
        return
    move_attempt(work, attempt, cause)
    if attempt.state is AttemptState.RUNNING:
        attempt.last_event_at = work.now
    if job.state is JobState.ASSIGNED and attempt.state is not AttemptState.PREPARING:
        move_job(work, job, JobCause.STARTED)
