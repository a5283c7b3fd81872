"""Leases: a claim is granted one attempt on one device, once; renewals keep it and carry a cancel back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from sqlalchemy.exc import IntegrityError

from contract.agent_api import ClaimRequest, Lease, RenewAnswer, RenewRequest
from contract.calibration import Calibration
from contract.states import AttemptState, DeviceState, JobState
from controller.db.attempts import AttemptRepository, LeaseRepository
from controller.db.devices import AgentRepository, DeviceRepository
from controller.db.job_specs import stored_arms, stored_spec
from controller.db.models import AttemptRow, ClaimRow, DeviceRow, JobRow, LeaseRow
from controller.db.runs import JobRepository
from controller.db.unit_of_work import UnitOfWork
from controller.errors import FencedError, ForbiddenError, LeaseGoneError
from controller.protocol.endings import expire_overdue
from controller.protocol.enrolment import touch_agent
from controller.protocol.observation import Condition, Sight, causes_of
from controller.protocol.transitions import move_attempt, move_device, move_job
from controller.scheduling.facts import (
    calibrations_for,
    device_calibrations,
    device_facts,
    farm_facts,
    queued_facts,
)
from controller.scheduling.placement import DeviceFacts, Rules, assign, choose
from controller.states.devices import DEVICE_MACHINE, DeviceCause
from controller.states.work import ATTEMPT_DEADLINES, ATTEMPT_MACHINE, AttemptCause, JobCause

_CAUSE_OF_PHASE: Final = {
    "preparing": AttemptCause.ACCEPTED,
    "running": AttemptCause.RUNNING_REPORTED,
    "uploading": AttemptCause.UPLOADING_REPORTED,
}


@dataclass(frozen=True, slots=True)
class WaitingClaim:
    """A claim that has no answer yet."""

    claim_id: str
    device_agent_id: str
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outlook:
    """Ids of the claims that have an answer already, and of those for which a write transaction is worth it.

    changes_at: when a retry becomes due or a hold ends next; None when time alone changes nothing.
    """

    answered: frozenset[str]
    worth_it: frozenset[str] = frozenset()
    changes_at: datetime | None = None


def claim(work: UnitOfWork, device_agent_id: str, request: ClaimRequest) -> Lease | None:
    """A lease on one of the agent's ready devices, or None when there is nothing to do now.

    The same claim_id gets the same lease again, or LeaseGoneError once that lease has ended. None is not
    remembered here, so that a waiting call may ask again; `close_claims` remembers it.
    """
    agent = touch_agent(work, device_agent_id)
    expire_overdue(work)
    known = LeaseRepository(work.session).claim(request.claim_id)
    if known is not None:
        return _repeat(work, device_agent_id, known)
    if agent.drain:
        return None
    devices = _usable(work, device_agent_id, request.devices)
    placed = _place(work, devices, request.claim_id)
    if placed is None:
        return None
    job, device = placed
    try:
        with work.session.begin_nested():
            return _grant(work, device, job, request.claim_id)
    except IntegrityError:
        # A second call with this claim_id was faster, in another process.
        known = LeaseRepository(work.session).claim(request.claim_id)
        if known is None:
            raise
        return _repeat(work, device_agent_id, known)


def outlook(work: UnitOfWork, claims: Sequence[WaitingClaim]) -> Outlook:
    """What all of these claims may expect. It reads only, takes no lock, and costs next to nothing while the
    queue is empty; who tries on the strength of it may find that another was faster."""
    answered = LeaseRepository(work.session).answered([claim.claim_id for claim in claims])
    if not JobRepository(work.session).any_queued():
        return Outlook(answered)
    draining = AgentRepository(work.session).draining()
    claimants = {
        device_id: claim
        for claim in claims
        if claim.device_agent_id not in draining
        for device_id in claim.device_ids
    }
    leased = LeaseRepository(work.session).leased_devices()
    asking = [
        device_facts(device)
        for device in DeviceRepository(work.session).for_placement(claimants)
        if device.device_id not in leased
        and device.device_agent_id == claimants[device.device_id].device_agent_id
    ]
    queued = queued_facts(work.session, asking)
    if not queued:
        return Outlook(answered)
    offered = {
        device.device_id: replace(device, state=DeviceState.READY)
        for device in asking
        if _could_be_ready(work, device)
    }
    farm = [offered.get(device.device_id, device) for device in farm_facts(work.session)]
    rules = Rules(age_boost_s=work.times.age_boost_s, seed="")
    placed = assign(queued, farm, frozenset(offered), work.now, rules)
    later = {*(job.not_before for job in queued), *(device.hold_until for device in asking)}
    return Outlook(
        answered,
        frozenset(claimants[placement.device_id].claim_id for placement in placed),
        min((moment for moment in later if moment is not None and moment > work.now), default=None),
    )


def close_claims(work: UnitOfWork, claims: Sequence[WaitingClaim]) -> frozenset[str]:
    """Remember that these claims got nothing: a copy that comes late must not get a lease either.

    Returns the ids of those that have another answer: a repetition of the call was granted a lease meanwhile.
    """
    AgentRepository(work.session).touch({claim.device_agent_id for claim in claims}, work.now)
    agents = {claim.claim_id: claim.device_agent_id for claim in claims}
    return frozenset(agents) - LeaseRepository(work.session).close_claims(agents, work.now)


def lease_answer(work: UnitOfWork, lease: LeaseRow, attempt: AttemptRow, job: JobRow) -> Lease:
    """The lease as the agent gets it."""
    calibrations = {arm: Calibration.model_validate(each) for arm, each in attempt.calibrations.items()}
    return Lease(
        lease_id=lease.lease_id,
        attempt_id=lease.attempt_id,
        device_id=lease.device_id,
        fence=lease.fence,
        ttl_s=work.times.lease_ttl_s,
        renew_interval_s=work.times.renew_interval_s,
        margin_s=work.times.margin_s,
        spec=stored_spec(job).for_attempt(lease.attempt_id, calibrations),
    )


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
        ttl_s=work.times.lease_ttl_s,
        renew_interval_s=work.times.renew_interval_s,
        margin_s=work.times.margin_s,
        directive=directive_of(job),
    )


def directive_of(job: JobRow) -> Literal["continue", "cancel"]:
    """What the agent shall do with the job's attempt."""
    return "cancel" if job.state is JobState.CANCELLING else "continue"


def _repeat(work: UnitOfWork, device_agent_id: str, known: ClaimRow) -> Lease | None:
    if known.device_agent_id != device_agent_id:
        raise ForbiddenError("this claim was made by another agent")
    if known.lease_id is None:
        return None
    lease = LeaseRepository(work.session).find(known.lease_id)
    if lease is None or lease.released_at is not None:
        raise LeaseGoneError(known.lease_id)
    # The agent counts the ttl from when it sent this repetition, so it starts anew here too.
    lease.renewed_at = work.now
    lease.expires_at = work.now + work.times.lease_ttl
    attempt = AttemptRepository(work.session).get(lease.attempt_id)
    job = JobRepository(work.session).get(attempt.job_id)
    return lease_answer(work, lease, attempt, job)


def _could_be_ready(work: UnitOfWork, device: DeviceFacts) -> bool:
    on_hold = device.hold_until is not None and device.hold_until > work.now
    state = device.state
    for cause in causes_of(state, Sight(Condition.USABLE, on_hold=on_hold)):
        state = DEVICE_MACHINE.next_state(state, cause)
    return state is DeviceState.READY


def _usable(work: UnitOfWork, device_agent_id: str, device_ids: list[str]) -> list[DeviceRow]:
    """The claim's devices on which something can be granted. To claim one is to call it ready."""
    leased = LeaseRepository(work.session).leased_devices()
    usable = []
    for device in DeviceRepository(work.session).lock_free(device_ids, device_agent_id):
        if device.device_id in leased:
            continue
        on_hold = device.hold_until is not None and device.hold_until > work.now
        device.last_seen_at = work.now
        for cause in causes_of(device.state, Sight(Condition.USABLE, on_hold=on_hold)):
            move_device(work, device, cause, "claimed for")
        if device.state is DeviceState.READY and not on_hold:
            device.reasons = []
            usable.append(device)
    return usable


def _place(work: UnitOfWork, devices: list[DeviceRow], claim_id: str) -> tuple[JobRow, DeviceRow] | None:
    """The best job and its device, both locked; a job that another claim is taking is passed over."""
    if not devices:
        return None
    work.session.flush()
    by_id = {device.device_id: device for device in devices}
    queued = queued_facts(work.session, [device_facts(device) for device in devices])
    farm = farm_facts(work.session) if queued else []
    rules = Rules(age_boost_s=work.times.age_boost_s, seed=claim_id)
    while (placement := choose(queued, farm, frozenset(by_id), work.now, rules)) is not None:
        job = JobRepository(work.session).try_lock_queued(placement.job_id)
        if job is not None:
            return job, by_id[placement.device_id]
        queued = [facts for facts in queued if facts.job_id != placement.job_id]
    return None


def _grant(work: UnitOfWork, device: DeviceRow, job: JobRow, claim_id: str) -> Lease:
    device.fence += 1
    job.attempts_used += 1
    attempt = _new_attempt(work, device, job)
    work.session.add(attempt)
    work.session.flush()
    lease = LeaseRow(
        lease_id=work.new_id("lea"),
        attempt_id=attempt.attempt_id,
        device_id=device.device_id,
        device_agent_id=device.device_agent_id,
        fence=device.fence,
        granted_at=work.now,
        renewed_at=work.now,
        expires_at=work.now + work.times.lease_ttl,
    )
    work.session.add(lease)
    work.session.flush()
    work.session.add(
        ClaimRow(
            claim_id=claim_id,
            device_agent_id=device.device_agent_id,
            lease_id=lease.lease_id,
            created_at=work.now,
        )
    )
    move_device(work, device, DeviceCause.CLAIMED, attempt.attempt_id)
    move_job(work, job, JobCause.CLAIMED)
    work.session.flush()
    return lease_answer(work, lease, attempt, job)


def _new_attempt(work: UnitOfWork, device: DeviceRow, job: JobRow) -> AttemptRow:
    limits: dict[str, float] = job.spec["limits"]
    calibrations = calibrations_for(stored_arms(job), job.model, device_calibrations(device))
    accept_by: datetime = work.after(ATTEMPT_DEADLINES[ATTEMPT_MACHINE.initial].period_s(work.times, limits))
    return AttemptRow(
        attempt_id=work.new_id("att"),
        job_id=job.job_id,
        number=job.attempts_used,
        state=ATTEMPT_MACHINE.initial,
        device_id=device.device_id,
        device_agent_id=device.device_agent_id,
        fence=device.fence,
        device_generation=device.generation,
        limits=limits,
        calibrations={arm: each.model_dump(mode="json") for arm, each in calibrations.items()},
        trials_total=len(job.spec["trials"]),
        phase_deadline=accept_by,
        state_since=work.now,
        created_at=work.now,
    )


def _report_phase(work: UnitOfWork, attempt: AttemptRow, job: JobRow, cause: AttemptCause) -> None:
    """A phase that has already passed comes from a late or repeated call and changes nothing."""
    if not ATTEMPT_MACHINE.allows(attempt.state, cause):
        return
    move_attempt(work, attempt, cause)
    if attempt.state is AttemptState.RUNNING:
        attempt.last_event_at = work.now
    if job.state is JobState.ASSIGNED and attempt.state is not AttemptState.PREPARING:
        move_job(work, job, JobCause.STARTED)
