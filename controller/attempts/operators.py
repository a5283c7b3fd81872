"""What a person decides about a device. A leased device is drained: the decision waits for its attempt."""

from contract.states import DeviceState
from controller.attempts.apply import move_device
from controller.attempts.device_states import DeviceCause
from controller.attempts.unit_of_work import UnitOfWork
from controller.db.devices import DeviceRepository
from controller.db.models import AuditRow, DeviceRow


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
