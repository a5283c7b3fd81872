"""What a person decides: about a run, at once for a job that waits and through the agent for one that runs;
about a device, and a leased one is drained: the decision waits for its attempt; about a device agent.
"""

from contract.administration import AuditAction, DeviceReservation
from contract.states import DeviceState, JobState
from controller.db.audit import Act, AuditRepository
from controller.db.devices import AgentRepository, DeviceRepository
from controller.db.models import AgentRow, DeviceRow, JobRow
from controller.db.runs import JobRepository, RunRepository
from controller.db.unit_of_work import UnitOfWork
from controller.protocol.endings import settle_run
from controller.protocol.transitions import move_device, move_job
from controller.states.devices import DeviceCause
from controller.states.work import JOB_MACHINE, JobCause


def cancel_run(work: UnitOfWork, run_id: str) -> int:
    """Cancel every job that is not done; returns how many. Again is not an error. RunNotFoundError."""
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


def quarantine_device(work: UnitOfWork, device_id: str, actor: str, reason: str) -> DeviceRow:
    """Take it out until it is released or an automatic check passes."""
    device = _decide(work, device_id, Act(actor, AuditAction.QUARANTINE, device_id, reason))
    if device.state is DeviceState.LEASED:
        device.drain_to = DeviceState.QUARANTINED
    elif device.state is not DeviceState.QUARANTINED:
        # A person's word is not taken back by an automatic check.
        device.rechecks = len(work.times.recheck_s)
        move_device(work, device, DeviceCause.QUARANTINE_ORDERED, reason, actor)
    device.reasons = [reason]
    return device


def maintain_device(work: UnitOfWork, device_id: str, actor: str, reason: str) -> DeviceRow:
    """Take it out while a person works on it."""
    device = _decide(work, device_id, Act(actor, AuditAction.MAINTAIN, device_id, reason))
    if device.state is DeviceState.LEASED:
        device.drain_to = DeviceState.MAINTENANCE
    elif device.state is not DeviceState.MAINTENANCE:
        move_device(work, device, DeviceCause.MAINTENANCE_ORDERED, reason, actor)
    device.reasons = [reason]
    return device


def release_device(work: UnitOfWork, device_id: str, actor: str, reason: str) -> DeviceRow:
    """Put it back: it is checked first, and past faults are forgotten. Also ends a wish to drain it."""
    device = _decide(work, device_id, Act(actor, AuditAction.RELEASE, device_id, reason))
    if device.drain_to is not None:
        device.drain_to = None
    else:
        move_device(work, device, DeviceCause.RELEASE_ORDERED, reason, actor)
        device.faults_in_a_row, device.rechecks = 0, 0
    device.reasons = []
    return device


def reserve_device(work: UnitOfWork, device_id: str, actor: str, asked: DeviceReservation) -> DeviceRow:
    """Keep a ready device for a person for a while; the fence rises as for a claim.

    InvalidTransitionError for a device that is not ready.
    """
    detail = f"for {asked.period_s:.0f} s: {asked.reason}"
    device = _decide(work, device_id, Act(actor, AuditAction.RESERVE, device_id, detail))
    move_device(work, device, DeviceCause.RESERVED, detail, actor)
    device.fence += 1
    device.state_deadline = work.after(asked.period_s)
    device.reasons = [f"reserved by {actor}: {asked.reason}"]
    return device


def retire_device(work: UnitOfWork, device_id: str, actor: str, reason: str) -> DeviceRow:
    """Remove it for good; InvalidTransitionError while it is leased."""
    device = _decide(work, device_id, Act(actor, AuditAction.RETIRE, device_id, reason))
    move_device(work, device, DeviceCause.RETIREMENT_ORDERED, reason, actor)
    device.reasons = [reason]
    return device


def _decide(work: UnitOfWork, device_id: str, act: Act) -> DeviceRow:
    device = DeviceRepository(work.session).get_locked(device_id)
    AuditRepository(work.session).record(act, work.now)
    return device


def drain_agent(work: UnitOfWork, device_agent_id: str, actor: str, reason: str) -> AgentRow:
    """No new work for any of its devices; what runs goes on. Again is not an error."""
    agent = AgentRepository(work.session).get(device_agent_id)
    AuditRepository(work.session).record(Act(actor, AuditAction.DRAIN, device_agent_id, reason), work.now)
    agent.drain = True
    return agent


def resume_agent(work: UnitOfWork, device_agent_id: str, actor: str, reason: str) -> AgentRow:
    """It gets work again. Again is not an error."""
    agent = AgentRepository(work.session).get(device_agent_id)
    AuditRepository(work.session).record(Act(actor, AuditAction.RESUME, device_agent_id, reason), work.now)
    agent.drain = False
    work.wake_claims()
    return agent
