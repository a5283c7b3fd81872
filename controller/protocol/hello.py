"""Hello: an agent's full report against the books. Whatever message was lost before, this one heals."""

from dataclasses import dataclass
from datetime import timedelta

from contract.agent_api import DeviceReport, DeviceStanding, HeldLease, Hello, HelloAnswer
from contract.states import DeviceState
from controller.db.attempts import AttemptRepository, LeaseRepository
from controller.db.devices import AgentRepository, DeviceRepository
from controller.db.models import AgentRow, DeviceRow, LeaseRow
from controller.db.unit_of_work import UnitOfWork
from controller.protocol.endings import end_attempt, expire_overdue
from controller.protocol.enrolment import require_contract, touch_agent
from controller.protocol.observation import Sight, causes_of, condition_of
from controller.protocol.transitions import move_device
from controller.scheduling.facts import device_facts
from controller.states.devices import DEVICE_MACHINE, DeviceCause
from controller.states.work import AttemptCause

HELD_ELSEWHERE = "held_by_another_agent"
# Two hellos of one agent may overtake each other by this much; a clock that was set back jumps further.
_OVERTAKEN = timedelta(seconds=120)


def hello(work: UnitOfWork, device_agent_id: str, report: Hello) -> HelloAnswer:
    """Bring devices and leases into agreement; AgentOutdatedError for an unknown contract version."""
    require_contract(report.contract_version)
    agent = touch_agent(work, device_agent_id)
    expire_overdue(work)
    standings: list[DeviceStanding] = []
    if _is_newest(agent, report):
        agent.agent_version, agent.contract_version = report.agent_version, report.contract_version
        agent.health = report.health.model_dump(mode="json")
        agent.last_hello_sent_at = report.sent_at
        books = _books(work, report)
        reports = sorted(report.devices, key=lambda device: device.device_id)
        standings.extend(_see(work, agent, device, books) for device in reports)
        _miss(work, agent, {device.device_id for device in report.devices})
    return _answer(work, agent, report, standings)


@dataclass(frozen=True, slots=True)
class _Books:
    """What is known of the reported devices, read at once. devices: locked, by id; leased: in the books;
    busy: of leases that the agent names, live or not: it has not let go of them yet."""

    devices: dict[str, DeviceRow]
    leased: set[str]
    busy: frozenset[str]


def _books(work: UnitOfWork, report: Hello) -> _Books:
    devices = DeviceRepository(work.session).locked([device.device_id for device in report.devices])
    leases = LeaseRepository(work.session)
    return _Books(
        devices={device.device_id: device for device in devices},
        leased=set(leases.leased_devices()),
        busy=leases.devices_of([held.lease_id for held in report.leases]),
    )


def _is_newest(agent: AgentRow, report: Hello) -> bool:
    last = agent.last_hello_sent_at
    return last is None or report.sent_at >= last or last - report.sent_at > _OVERTAKEN


def _answer(work: UnitOfWork, agent: AgentRow, report: Hello, standings: list[DeviceStanding]) -> HelloAnswer:
    go_on: list[str] = []
    stop: list[str] = []
    for held in report.leases:
        lease = LeaseRepository(work.session).find(held.lease_id)
        lives = lease is not None and lease.released_at is None and _agrees(lease, agent, held)
        (go_on if lives else stop).append(held.lease_id)
    return HelloAnswer(
        hello_interval_s=work.times.hello_interval_s,
        claim_wait_s=work.times.claim_wait_s,
        continue_leases=go_on,
        abandon_leases=stop,
        devices=standings,
        drain=agent.drain,
    )


def _agrees(lease: LeaseRow, agent: AgentRow, held: HeldLease) -> bool:
    said = (agent.device_agent_id, held.attempt_id, held.fence)
    return (lease.device_agent_id, lease.attempt_id, lease.fence) == said


def _see(work: UnitOfWork, agent: AgentRow, report: DeviceReport, books: _Books) -> DeviceStanding:
    device = books.devices.get(report.device_id)
    if device is None:
        device = _first_seen(work, agent, report)
    elif device.device_agent_id != agent.device_agent_id:
        if not _may_move(work, device):
            return DeviceStanding(device_id=device.device_id, state=device.state, reasons=[HELD_ELSEWHERE])
        _move_here(work, device, agent)
        books.leased.discard(device.device_id)
    before = device_facts(device)
    _update(work, device, report)
    if device_facts(device) != before:
        work.wake_claims()
    _observe(work, device, report, books)
    return DeviceStanding(device_id=device.device_id, state=device.state, reasons=list(device.reasons))


def _first_seen(work: UnitOfWork, agent: AgentRow, report: DeviceReport) -> DeviceRow:
    device = DeviceRow(
        device_id=report.device_id,
        device_agent_id=agent.device_agent_id,
        kind=report.kind,
        state=DEVICE_MACHINE.initial,
        state_since=work.now,
        reasons=[],
        fence=0,
        generation=report.generation,
        device_model=report.device_model,
        os_name=report.os_name,
        os_version=report.os_version,
        os_build=report.os_build,
        faults_in_a_row=0,
        rechecks=0,
        first_seen_at=work.now,
        last_seen_at=work.now,
    )
    work.session.add(device)
    work.session.flush()
    return device


def _may_move(work: UnitOfWork, device: DeviceRow) -> bool:
    """Only when its own agent has lost it: a device that two agents see is not torn between them."""
    if device.state in DEVICE_MACHINE.sources(DeviceCause.BACK_IN_HOLD):
        return True
    owner = AgentRepository(work.session).find(device.device_agent_id)
    silent_since = work.now - timedelta(seconds=work.times.agent_offline_s)
    return owner is None or owner.last_seen_at <= silent_since


def _move_here(work: UnitOfWork, device: DeviceRow, agent: AgentRow) -> None:
    lease = LeaseRepository(work.session).live_of_device(device.device_id)
    if lease is not None:
        attempt = AttemptRepository(work.session).get_locked(lease.attempt_id)
        detail = f"the device was seen on agent {agent.name}"
        end_attempt(work, attempt, AttemptCause.LEASE_REVOKED, detail=detail)
    device.device_agent_id = agent.device_agent_id
    device.fence += 1
    if DEVICE_MACHINE.allows(device.state, DeviceCause.MOVED):
        move_device(work, device, DeviceCause.MOVED, f"to agent {agent.name}")


def _update(work: UnitOfWork, device: DeviceRow, report: DeviceReport) -> None:
    new_system = (device.os_version, device.os_build) != (report.os_version, report.os_build)
    if new_system and DEVICE_MACHINE.allows(device.state, DeviceCause.CHECK_DUE):
        move_device(work, device, DeviceCause.CHECK_DUE, f"{device.os_version} is now {report.os_version}")
    device.kind = report.kind
    device.generation = max(device.generation, report.generation)
    device.device_model = report.device_model
    device.os_name = report.os_name
    device.os_version, device.os_build = report.os_version, report.os_build
    device.memory_bytes = report.memory_bytes
    device.virtual = report.virtual
    device.models = list(report.models)
    device.labels = dict(report.labels)
    problems = [each.model_dump(mode="json") for each in report.model_problems]
    device.properties = {**report.properties, "model_problems": problems}
    device.calibrations = [each.model_dump(mode="json") for each in report.calibrations]
    device.ready_at = work.after(report.ready_in_s) if report.ready_in_s is not None else None
    device.last_seen_at = work.now


def _observe(work: UnitOfWork, device: DeviceRow, report: DeviceReport, books: _Books) -> None:
    sight = Sight(
        condition_of(report.ready, frozenset(report.reasons)),
        busy=device.device_id in books.busy,
        lease_live=device.device_id in books.leased,
        on_hold=device.hold_until is not None and device.hold_until > work.now,
    )
    for cause in causes_of(device.state, sight):
        move_device(work, device, cause, ", ".join(report.reasons))
    # What a verdict or a person wrote there stays until the state changes or the wish to drain is gone.
    kept = device.state is DeviceState.RETIRED or DEVICE_MACHINE.allows(
        device.state, DeviceCause.RELEASE_ORDERED
    )
    if device.drain_to is None and not kept:
        device.reasons = list(report.reasons)


def _miss(work: UnitOfWork, agent: AgentRow, seen: set[str]) -> None:
    """Devices that the agent had and no longer reports, once that is more than a hiccup."""
    gone_since = work.now - timedelta(seconds=work.times.absent_after_s)
    for device in DeviceRepository(work.session).of_agent(agent.device_agent_id):
        if device.device_id in seen or device.last_seen_at > gone_since:
            continue
        lease = LeaseRepository(work.session).live_of_device(device.device_id)
        if lease is not None:
            attempt = AttemptRepository(work.session).get_locked(lease.attempt_id)
            end_attempt(work, attempt, AttemptCause.DEVICE_DETACHED)
        if DEVICE_MACHINE.allows(device.state, DeviceCause.DETACHED):
            move_device(work, device, DeviceCause.DETACHED, "its agent no longer reports it")
