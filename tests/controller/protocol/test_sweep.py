"""The sweep enforces every deadline, and a second sweep finds nothing left to do."""

import pytest
from sqlalchemy import select

from contract.administration import DeviceReservation
from contract.jobs import Limits
from contract.rest import DeviceSelector
from contract.states import AttemptState, DeviceState, JobOutcome, JobState, RunState
from controller.db.models import AuditRow, ClaimRow
from controller.db.session import read_only
from controller.errors import InvalidTransitionError
from controller.protocol.operators import (
    maintain_device,
    quarantine_device,
    release_device,
    reserve_device,
    retire_device,
)
from controller.protocol.sweep import SweepCounts
from tests.controller.farm import Farm, control_lines, fixed_id, report

NOTHING = SweepCounts(0, 0, 0, 0, 0, 0)


@pytest.fixture
def farm() -> Farm:
    return Farm()


@pytest.fixture
def agent(farm: Farm) -> str:
    device_agent_id = farm.add_agent()
    farm.hello(device_agent_id, "d1")
    return device_agent_id


def keep_renewing(farm: Farm, agent: str, lease: object, seconds: float) -> None:
    """Let time pass with a renewal every 20 s, as an agent that lives would."""
    phase = farm.attempt(lease).state.value
    while seconds > 0:
        farm.pass_time(min(20, seconds))
        seconds -= 20
        farm.renew(agent, lease, phase)


def test_a_sweep_over_a_quiet_farm_does_nothing(farm: Farm, agent: str) -> None:
    farm.add_job()
    assert farm.sweep() == NOTHING


@pytest.mark.parametrize(
    ("phase", "limit_s", "end"),
    [
        ("preparing", 100, (AttemptState.ERRORED, "prepare_timeout")),
        ("running", 200, (AttemptState.TIMED_OUT, "run_timeout")),
        ("uploading", 300, (AttemptState.ERRORED, "upload_timeout")),
    ],
)
def test_each_phase_ends_at_its_limit_and_the_grace(
    farm: Farm, agent: str, phase: str, limit_s: float, end: tuple[AttemptState, str]
) -> None:
    farm.add_job(limits=Limits(prepare_s=100, run_s=200, upload_s=300, stall_s=1000))
    lease = farm.granted(agent, "d1")
    farm.renew(agent, lease, phase)
    keep_renewing(farm, agent, lease, limit_s + farm.times.limit_grace_s - 1)
    assert farm.sweep() == NOTHING
    farm.pass_time(1)
    assert farm.sweep().attempts_overdue == 1
    attempt = farm.attempt(lease)
    assert (attempt.state, attempt.reason) == end
    # The holder may still believe in its lease, so the device waits for as long as it could.
    device = farm.device("d1")
    assert device.state is DeviceState.HELD
    assert device.hold_until is not None
    assert (device.hold_until - farm.now).total_seconds() == pytest.approx(69)
    assert farm.sweep() == NOTHING


def test_a_lease_that_is_never_accepted_ends_after_the_accept_time(farm: Farm, agent: str) -> None:
    job_id = farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.pass_time(30)
    farm.sweep()
    attempt = farm.attempt(lease)
    assert (attempt.state, attempt.reason) == (AttemptState.ERRORED, "accept_timeout")
    assert farm.job(job_id).state is JobState.QUEUED


def test_a_runtime_that_writes_nothing_for_too_long_has_stalled(farm: Farm, agent: str) -> None:
    job_id = farm.add_job(limits=Limits(stall_s=60))
    lease = farm.granted(agent, "d1")
    farm.renew(agent, lease)
    keep_renewing(farm, agent, lease, 80)
    farm.upload(agent, lease, control_lines(lease.attempt_id, 1))
    keep_renewing(farm, agent, lease, 80)
    assert farm.sweep() == NOTHING
    keep_renewing(farm, agent, lease, 11)
    farm.sweep()
    attempt = farm.attempt(lease)
    assert (attempt.state, attempt.reason) == (AttemptState.ERRORED, "runtime_stalled")
    assert farm.job(job_id).outcome is JobOutcome.FAILED


def test_devices_of_a_silent_agent_are_lost_and_its_lease_ends_too(farm: Farm, agent: str) -> None:
    farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.pass_time(60)
    counts = farm.sweep()
    assert (counts.leases_expired, counts.devices_lost) == (1, 1)
    assert farm.attempt(lease).state is AttemptState.LOST
    assert farm.device("d1").state is DeviceState.LOST
    farm.hello(agent, "d1")
    assert farm.device("d1").state is DeviceState.HELD


def test_a_job_that_waits_too_long_expires_and_its_run_finishes(farm: Farm) -> None:
    run_id, (job_id,) = farm.add_run(DeviceSelector(device_id="nowhere"))
    farm.pass_time(86_400)
    assert farm.sweep().jobs_expired == 1
    assert farm.job(job_id).outcome is JobOutcome.EXPIRED
    assert farm.run(run_id).state is RunState.FINISHING


def test_a_run_without_jobs_finishes(farm: Farm) -> None:
    run_id, _ = farm.add_run()
    assert farm.sweep().runs_settled == 1
    assert farm.run(run_id).state is RunState.FINISHING


def test_answers_to_claims_are_forgotten_after_a_while(farm: Farm, agent: str) -> None:
    farm.close_claim(agent, fixed_id("clm", 1))
    farm.sweep()
    with read_only(farm.sessions) as session:
        assert len(session.scalars(select(ClaimRow)).all()) == 1
    farm.pass_time(3601)
    farm.sweep()
    with read_only(farm.sessions) as session:
        assert session.scalars(select(ClaimRow)).all() == []


# --- deadlines of devices


@pytest.mark.parametrize(
    ("reason", "state", "period_s"),
    [
        ("starting", DeviceState.PREPARING, 300),
        ("hot", DeviceState.COOLING, 3600),
        ("battery_low", DeviceState.CHARGING, 3600),
    ],
)
def test_a_device_that_does_not_get_well_in_time_is_quarantined(
    farm: Farm, agent: str, reason: str, state: DeviceState, period_s: float
) -> None:
    farm.hello(agent, report("d1", reason))
    assert farm.device("d1").state is state
    farm.pass_time(period_s)
    farm.hello(agent, report("d1", reason))
    assert farm.sweep().devices_overdue == 1
    assert farm.device("d1").state is DeviceState.QUARANTINED
    assert farm.device("d1").reasons != []


def test_a_blocked_device_waits_for_a_person_without_a_deadline(farm: Farm, agent: str) -> None:
    farm.hello(agent, report("d1", "untrusted"))
    farm.pass_time(86_400)
    farm.hello(agent, report("d1", "untrusted"))
    assert farm.sweep() == NOTHING


def test_cleaning_that_takes_too_long_is_recovery_and_that_quarantine(farm: Farm, agent: str) -> None:
    farm.add_job()
    farm.succeed(agent, farm.granted(agent, "d1"))
    for period_s, state in ((120, DeviceState.RECOVERING), (900, DeviceState.QUARANTINED)):
        farm.pass_time(period_s)
        farm.hello(agent, report("d1", "cleaning"))
        farm.sweep()
        assert farm.device("d1").state is state


def test_a_quarantined_device_is_checked_after_1_6_and_24_hours_then_only_by_a_person(
    farm: Farm, agent: str
) -> None:
    farm.hello(agent, report("d1", "starting"))
    farm.pass_time(300)
    farm.hello(agent, report("d1", "starting"))
    farm.sweep()
    for hours in (1, 6, 24):
        assert farm.device("d1").state is DeviceState.QUARANTINED
        farm.pass_time(hours * 3600)
        farm.hello(agent, report("d1", "checking"))
        farm.sweep()
        assert farm.device("d1").state is DeviceState.CHECKING
        # The check does not pass: recovery, and back into quarantine.
        while farm.device("d1").state is not DeviceState.QUARANTINED:
            farm.pass_time(900)
            farm.hello(agent, report("d1", "checking"))
            farm.sweep()
    farm.pass_time(30 * 86_400)
    farm.hello(agent, report("d1", "checking"))
    assert farm.sweep() == NOTHING
    with farm.unit_of_work() as work:
        release_device(work, "d1", "someone", "repaired")
    farm.hello(agent, "d1")
    assert farm.device("d1").state is DeviceState.READY


# --- people


def test_a_leased_device_is_drained_before_a_person_gets_it(farm: Farm, agent: str) -> None:
    farm.add_job()
    lease = farm.granted(agent, "d1")
    with farm.unit_of_work() as work:
        quarantine_device(work, "d1", "someone", "smells odd")
    farm.hello(agent, "d1", leases=(lease,))
    assert farm.device("d1").state is DeviceState.LEASED
    farm.succeed(agent, lease)
    device = farm.device("d1")
    assert (device.state, device.reasons, device.drain_to) == (DeviceState.QUARANTINED, ["smells odd"], None)


def test_a_wish_to_drain_can_be_taken_back(farm: Farm, agent: str) -> None:
    farm.add_job()
    lease = farm.granted(agent, "d1")
    with farm.unit_of_work() as work:
        maintain_device(work, "d1", "someone", "new cable")
        release_device(work, "d1", "someone", "later")
    farm.succeed(agent, lease)
    assert farm.device("d1").state is DeviceState.CLEANING


def test_a_persons_quarantine_is_not_ended_by_an_automatic_check(farm: Farm, agent: str) -> None:
    with farm.unit_of_work() as work:
        quarantine_device(work, "d1", "someone", "smells odd")
    farm.pass_time(30 * 86_400)
    farm.hello(agent, "d1")
    assert farm.sweep() == NOTHING
    assert farm.device("d1").state is DeviceState.QUARANTINED


def test_a_reservation_raises_the_fence_ends_by_itself_and_is_held_after_that(farm: Farm, agent: str) -> None:
    farm.add_job()
    with farm.unit_of_work() as work:
        reserve_device(work, "d1", "someone", DeviceReservation(reason="a look", period_s=600))
    assert farm.device("d1").fence == 1
    assert farm.claim(agent, "d1") is None
    farm.pass_time(600)
    farm.hello(agent, "d1")
    farm.sweep()
    assert farm.device("d1").state is DeviceState.HELD
    farm.pass_time(10)
    assert farm.granted(agent, "d1").fence == 2


def test_a_retired_device_is_gone_for_good_but_not_while_it_is_leased(farm: Farm, agent: str) -> None:
    farm.add_job()
    lease = farm.granted(agent, "d1")
    with farm.unit_of_work() as work, pytest.raises(InvalidTransitionError):
        retire_device(work, "d1", "someone", "sold")
    farm.succeed(agent, lease)
    with farm.unit_of_work() as work:
        retire_device(work, "d1", "someone", "sold")
    farm.hello(agent, "d1")
    assert farm.device("d1").state is DeviceState.RETIRED


def test_every_decision_is_kept_with_who_made_it(farm: Farm, agent: str) -> None:
    with farm.unit_of_work() as work:
        quarantine_device(work, "d1", "ada", "smells odd")
        release_device(work, "d1", "grace", "does not")
    with read_only(farm.sessions) as session:
        kept = [
            (row.principal, row.action, row.subject, row.detail) for row in session.scalars(select(AuditRow))
        ]
    assert kept == [("ada", "quarantine", "d1", "smells odd"), ("grace", "release", "d1", "does not")]
