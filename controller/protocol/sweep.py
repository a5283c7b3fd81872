"""The sweep: every deadline that no call has noticed. Safe to run twice, at once, or not at all.

Safety never depends on it: leases end lazily too (controller/protocol/endings.py). Progress does.
"""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, select

from contract.states import AttemptState, DeviceState, JobState, RunState
from controller.db.attempts import AttemptRepository
from controller.db.devices import AgentRepository, DeviceRepository
from controller.db.models import AttemptRow, ClaimRow, DeviceRow, JobRow, RunRow
from controller.db.runs import JobRepository
from controller.db.unit_of_work import UnitOfWork
from controller.protocol.endings import end_attempt, expire_overdue, settle_run
from controller.protocol.transitions import move_device, move_job
from controller.states.devices import DEVICE_DEADLINES, DEVICE_MACHINE, DeviceCause
from controller.states.work import ATTEMPT_DEADLINES, AttemptCause, JobCause


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """What a sweep found; all zero when every deadline was kept."""

    leases_expired: int
    attempts_overdue: int
    devices_lost: int
    devices_overdue: int
    jobs_expired: int
    runs_settled: int


def sweep(work: UnitOfWork) -> SweepCounts:
    """Enforce every deadline as of work.now."""
    leases_expired = expire_overdue(work)
    attempts_overdue = _end_overdue_attempts(work)
    devices_lost = _lose_devices_of_silent_agents(work)
    devices_overdue = _move_overdue_devices(work)
    jobs_expired = _expire_queued_jobs(work)
    runs_settled = _settle_runs(work)
    forgotten = work.now - timedelta(seconds=work.times.claim_kept_s)
    work.session.execute(delete(ClaimRow).where(ClaimRow.created_at < forgotten))
    return SweepCounts(
        leases_expired, attempts_overdue, devices_lost, devices_overdue, jobs_expired, runs_settled
    )


def _end_overdue_attempts(work: UnitOfWork) -> int:
    ended = 0
    for found in AttemptRepository(work.session).live():
        attempt = AttemptRepository(work.session).get_locked(found.attempt_id)
        cause = _overdue_cause(work, attempt)
        if cause is not None:
            end_attempt(work, attempt, cause, detail="the controller's own deadline")
            work.session.flush()
            ended += 1
    return ended


def _overdue_cause(work: UnitOfWork, attempt: AttemptRow) -> AttemptCause | None:
    if attempt.ended_at is not None:
        return None
    if attempt.phase_deadline is not None and attempt.phase_deadline <= work.now:
        return ATTEMPT_DEADLINES[attempt.state].cause
    if attempt.state is AttemptState.RUNNING and attempt.last_event_at is not None:
        silence_s = (work.now - attempt.last_event_at).total_seconds()
        if silence_s > attempt.limits["stall_s"] + work.times.limit_grace_s:
            return AttemptCause.STALLED
    return None


def _lose_devices_of_silent_agents(work: UnitOfWork) -> int:
    lost = 0
    silent_since = work.now - timedelta(seconds=work.times.agent_offline_s)
    for agent in AgentRepository(work.session).silent_since(silent_since):
        last_seen = agent.last_seen_at.isoformat(timespec="seconds")
        for device in DeviceRepository(work.session).of_agent(agent.device_agent_id):
            if DEVICE_MACHINE.allows(device.state, DeviceCause.AGENT_OFFLINE):
                detail = f"nothing was heard of device agent {agent.name} since {last_seen}"
                move_device(work, device, DeviceCause.AGENT_OFFLINE, detail)
                if device.drain_to is None:
                    device.reasons = [detail]
                lost += 1
    return lost


def _move_overdue_devices(work: UnitOfWork) -> int:
    work.session.flush()
    overdue = DeviceRepository(work.session).overdue(work.now)
    for device in overdue:
        _move_overdue_device(work, device)
    return len(overdue)


def _move_overdue_device(work: UnitOfWork, device: DeviceRow) -> None:
    detail = f"{device.state.value} since {device.state_since.isoformat()}"
    if device.state is DeviceState.QUARANTINED:
        device.rechecks += 1
        move_device(work, device, DeviceCause.RECHECK_DUE, f"automatic check {device.rechecks}")
        return
    if device.state is DeviceState.RESERVED:
        device.hold_until = work.now + work.times.hold
        move_device(work, device, DeviceCause.RESERVATION_EXPIRED, detail)
        return
    cause = DEVICE_DEADLINES[device.state].cause
    if cause is DeviceCause.CHECK_FAILED:
        device.faults_in_a_row += 1
        if device.faults_in_a_row >= work.times.faults_to_quarantine:
            cause = DeviceCause.CHECK_EXHAUSTED
    move_device(work, device, cause, detail)
    if DEVICE_MACHINE.allows(device.state, DeviceCause.RELEASE_ORDERED):
        device.reasons = [cause.value]


def _expire_queued_jobs(work: UnitOfWork) -> int:
    overdue = select(JobRow.job_id).where(JobRow.state == JobState.QUEUED, JobRow.queue_deadline <= work.now)
    expired = 0
    for job_id in list(work.session.scalars(overdue)):
        job = JobRepository(work.session).try_lock_queued(job_id)
        if job is not None:
            move_job(work, job, JobCause.QUEUE_OVERDUE)
            settle_run(work, job.run_id)
            expired += 1
    return expired


def _settle_runs(work: UnitOfWork) -> int:
    """Runs whose jobs are all done although nobody noticed, for instance because they had none."""
    open_jobs = select(JobRow.run_id).where(JobRow.state != JobState.DONE)
    stuck = select(RunRow.run_id).where(RunRow.state == RunState.ACTIVE, RunRow.run_id.not_in(open_jobs))
    work.session.flush()
    run_ids = list(work.session.scalars(stuck))
    for run_id in run_ids:
        settle_run(work, run_id)
    return len(run_ids)
