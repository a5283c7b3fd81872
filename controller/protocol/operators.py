"""What a person decides: about a run, at once for a job that waits and through the agent for one that runs;
about a device, and a leased one is drained: the decision waits for its attempt.
"""

from contract.states import DeviceState, JobState
from controller.db.devices import DeviceRepository
from controller.db.models import AuditRow, DeviceRow, JobRow
from controller.db.runs import JobRepository, RunRepository
from controller.db.unit_of_work import UnitOfWork
from controller.protocol.endings import settle_run
from controller.protocol.transitions import move_device, move_job
from controller.states.devices import DeviceCause
from controller.states.work import JOB_MACHINE, JobCause


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


def quarantine_device(work: UnitOfWork, device_id: str, principal: str, reason: str) -> DeviceRow:
    """Take it out until it is released or an automatic check passes."""
    device = _decide(work, device_id, principal, ("quarantine", reason))
    if device.state is DeviceState.LEASED:
        device.drain_to = DeviceState.QUARANTINED
    elif device.state is not DeviceState.QUARANTINED:
        # A person's word is not taken back by an automatic check.
        device.rechecks = len(work.times.recheck_s)
        move_device(work, device, DeviceCause.QUARANTINE_ORDERED, reason)
    device.reasons = [reason]
    return device


def maintain_device(work: UnitOfWork, device_id: str, principal: str, reason: str) -> DeviceRow:
    """Take it out while a person works on it."""
    device = _decide(work, device_id, principal, ("maintain", reason))
    if device.state is DeviceState.LEASED:
        device.drain_to = DeviceState.MAINTENANCE
    elif device.state is not DeviceState.MAINTENANCE:
        move_device(work, device, DeviceCause.MAINTENANCE_ORDERED, reason)
    device.reasons = [reason]
    return device


def release_device(work: UnitOfWork, device_id: str, principal: str, reason: str) -> DeviceRow:
    """Put it back: it is checked first, and past faults are forgotten. Also ends a wish to drain it."""
    device = _decide(work, device_id, principal, ("release", reason))
    if device.drain_to is not None:
        device.drain_to = None
    else:
        move_device(work, device, DeviceCause.RELEASE_ORDERED, reason)
        device.faults_in_a_row, device.rechecks = 0, 0
    device.reasons = []
    return device


def reserve_device(work: UnitOfWork, device_id: str, principal: str, period_s: float) -> DeviceRow:
    """Keep a ready device for a person for `period_s` seconds; the fence rises as for a claim."""
    device = _decide(work, device_id, principal, ("reserve", f"for {period_s:.0f} s"))
    move_device(work, device, DeviceCause.RESERVED, principal)
    device.fence += 1
    device.state_deadline = work.after(period_s)
    device.reasons = [f"reserved by {principal}"]
    return device


def retire_device(work: UnitOfWork, device_id: str, principal: str, reason: str) -> DeviceRow:
    """Remove it for good; InvalidTransitionError while it is leased."""
    device = _decide(work, device_id, principal, ("retire", reason))
    move_device(work, device, DeviceCause.RETIREMENT_ORDERED, reason)
    return device


def _decide(work: UnitOfWork, device_id: str, principal: str, decision: tuple[str, str]) -> DeviceRow:
    device = DeviceRepository(work.session).get_locked(device_id)
    action, detail = decision
    work.session.add(
        AuditRow(principal=principal, action=action, subject=device_id, detail=detail, created_at=work.now)
    )
    return device
