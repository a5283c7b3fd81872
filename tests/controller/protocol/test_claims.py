"""Claims: granted once, repeated safely, never on a device that somebody may still touch."""

import contextlib
from collections.abc import Callable

import pytest
from sqlalchemy import select

from contract.rest import DeviceSelector
from contract.states import AttemptState, DeviceState, JobState
from controller.db.models import AgentRow, AttemptRow, LeaseRow, OutboxRow
from controller.db.session import read_only
from controller.db.unit_of_work import UnitOfWork
from controller.errors import ForbiddenError, LeaseGoneError, NotAuthenticatedError
from controller.protocol.leases import Outlook, WaitingClaim, outlook
from controller.protocol.operators import quarantine_device
from tests.controller.farm import Farm, fixed_id, report


@pytest.fixture
def farm() -> Farm:
    return Farm()


@pytest.fixture
def agent(farm: Farm) -> str:
    device_agent_id = farm.add_agent()
    farm.hello(device_agent_id, "d1", "d2")
    return device_agent_id


def count(farm: Farm, table: type) -> int:
    with read_only(farm.sessions) as session:
        return len(session.scalars(select(table)).all())


def test_a_claim_gets_a_lease_with_everything_an_agent_needs(farm: Farm, agent: str) -> None:
    job_id = farm.add_job()
    lease = farm.granted(agent, "d1", "d2")
    assert (lease.ttl_s, lease.renew_interval_s, lease.margin_s) == (60, 20, 3)
    assert lease.spec.job_id == job_id
    assert lease.spec.attempt_id == lease.attempt_id
    assert farm.job(job_id).state is JobState.ASSIGNED
    assert farm.device(lease.device_id).state is DeviceState.LEASED
    attempt = farm.attempt(lease)
    assert (attempt.state, attempt.number, attempt.trials_total) == (AttemptState.LEASED, 1, 2)


def test_each_grant_raises_the_fence_of_the_device(farm: Farm, agent: str) -> None:
    fences = []
    for _ in range(3):
        farm.add_job()
        lease = farm.granted(agent, "d1")
        fences.append(lease.fence)
        farm.succeed(agent, lease)
    assert fences == [1, 2, 3]


def test_nothing_to_do_is_no_lease(farm: Farm, agent: str) -> None:
    assert farm.claim(agent, "d1") is None
    farm.add_run(DeviceSelector(device_id="elsewhere"))
    assert farm.claim(agent, "d1") is None


def test_the_same_claim_gets_the_same_lease_and_nothing_is_granted_twice(farm: Farm, agent: str) -> None:
    farm.add_job()
    farm.add_job()
    claim_id = fixed_id("clm", 1)
    first = farm.claim(agent, "d1", claim_id=claim_id)
    farm.pass_time(20)
    again = farm.claim(agent, "d1", claim_id=claim_id)
    assert again == first
    assert count(farm, AttemptRow) == 1


def test_a_repeated_claim_restarts_the_ttl_because_the_agent_counts_from_the_repetition(
    farm: Farm, agent: str
) -> None:
    farm.add_job()
    claim_id = fixed_id("clm", 1)
    lease = farm.claim(agent, "d1", claim_id=claim_id)
    assert lease is not None
    farm.pass_time(25)
    farm.claim(agent, "d1", claim_id=claim_id)
    farm.pass_time(59)
    farm.renew(agent, lease)


def test_a_claim_repeated_after_its_lease_ended_is_refused_not_revived(farm: Farm, agent: str) -> None:
    farm.add_job()
    claim_id = fixed_id("clm", 1)
    farm.claim(agent, "d1", claim_id=claim_id)
    farm.pass_time(61)
    with pytest.raises(LeaseGoneError):
        farm.claim(agent, "d1", claim_id=claim_id)


def test_a_claim_that_got_nothing_gets_nothing_for_ever(farm: Farm, agent: str) -> None:
    claim_id = fixed_id("clm", 1)
    assert farm.close_claim(agent, claim_id) is None
    farm.add_job()
    assert farm.claim(agent, "d1", claim_id=claim_id) is None
    assert farm.claim(agent, "d1") is not None


def test_closing_a_claim_that_was_granted_meanwhile_returns_its_lease(farm: Farm, agent: str) -> None:
    farm.add_job()
    claim_id = fixed_id("clm", 1)
    lease = farm.claim(agent, "d1", claim_id=claim_id)
    assert farm.close_claim(agent, claim_id) == lease


def test_another_agents_claim_is_not_answered(farm: Farm, agent: str) -> None:
    farm.add_job()
    claim_id = fixed_id("clm", 1)
    farm.claim(agent, "d1", claim_id=claim_id)
    other = farm.add_agent()
    with pytest.raises(ForbiddenError):
        farm.claim(other, "d1", claim_id=claim_id)


def test_an_agent_cannot_claim_for_a_device_that_is_not_its_own(farm: Farm, agent: str) -> None:
    farm.add_job()
    other = farm.add_agent()
    assert farm.claim(other, "d1", "unknown") is None


def test_an_unknown_agent_is_not_served(farm: Farm) -> None:
    with pytest.raises(NotAuthenticatedError):
        farm.claim(fixed_id("agt", 999), "d1")


def test_a_leased_device_is_not_granted_again(farm: Farm, agent: str) -> None:
    farm.add_job()
    farm.add_job()
    farm.granted(agent, "d1")
    assert farm.claim(agent, "d1") is None
    assert farm.granted(agent, "d1", "d2").device_id == "d2"


def test_after_an_expiry_the_device_is_held_before_it_is_granted_again(farm: Farm, agent: str) -> None:
    farm.add_job()
    farm.granted(agent, "d1")
    farm.add_job()
    farm.pass_time(60)
    assert farm.claim(agent, "d1") is None
    assert farm.device("d1").state is DeviceState.HELD
    farm.pass_time(9.9)
    assert farm.claim(agent, "d1") is None
    farm.pass_time(0.2)
    assert farm.granted(agent, "d1").fence == 2


def test_a_draining_agent_gets_nothing_new(farm: Farm, agent: str) -> None:
    farm.add_job()
    with farm.unit_of_work() as work:
        work.session.get_one(AgentRow, agent).drain = True
    assert farm.claim(agent, "d1") is None
    assert farm.hello(agent, "d1").drain


@pytest.mark.parametrize("reason", ["untrusted", "battery_low", "thermal_abort"])
def test_to_claim_a_device_is_to_call_it_ready(farm: Farm, agent: str, reason: str) -> None:
    farm.add_job()
    farm.hello(agent, report("d1", reason), "d2")
    assert farm.device("d1").state is not DeviceState.READY
    assert farm.granted(agent, "d1").device_id == "d1"
    assert farm.device("d1").reasons == []


def test_an_operators_decision_is_not_undone_by_a_claim(farm: Farm, agent: str) -> None:
    farm.add_job()
    with farm.unit_of_work() as work:
        quarantine_device(work, "d1", "someone", "smells odd")
    assert farm.claim(agent, "d1") is None


def waiting(agent: str, *devices: str, number: int = 1) -> WaitingClaim:
    return WaitingClaim(fixed_id("clm", number), agent, devices)


def look(farm: Farm, *claims: WaitingClaim) -> Outlook:
    with read_only(farm.sessions) as session:
        return outlook(UnitOfWork(session, farm.now, farm.times, farm.chance), claims)


def test_as_many_claims_are_worth_it_as_there_are_jobs_that_fit(farm: Farm, agent: str) -> None:
    claims = [waiting(agent, "d1", number=1), waiting(agent, "d2", number=2)]
    assert look(farm, *claims) == Outlook(frozenset())
    farm.add_run(DeviceSelector(device_id="d2"))
    farm.add_run(DeviceSelector(device_model="another"))
    assert look(farm, *claims).worth_it == {fixed_id("clm", 2)}
    farm.add_job()
    assert look(farm, *claims).worth_it == {fixed_id("clm", 1), fixed_id("clm", 2)}


def test_a_claim_is_not_worth_it_for_another_agents_device_nor_while_its_agent_drains(
    farm: Farm, agent: str
) -> None:
    farm.add_job()
    other = farm.add_agent()
    assert look(farm, waiting(other, "d1")).worth_it == frozenset()
    with farm.unit_of_work() as work:
        work.session.get_one(AgentRow, agent).drain = True
    assert look(farm, waiting(agent, "d1")).worth_it == frozenset()


def test_a_claim_with_an_answer_need_not_wait(farm: Farm, agent: str) -> None:
    farm.claim(agent, "d1", claim_id=fixed_id("clm", 1))
    farm.close_claim(agent, fixed_id("clm", 1))
    assert look(farm, waiting(agent, "d1")).answered == {fixed_id("clm", 1)}


def test_an_outlook_says_when_a_retry_or_the_end_of_a_hold_makes_another_look_worth_it(
    farm: Farm, agent: str
) -> None:
    job_id = farm.add_job()
    assert look(farm, waiting(agent, "d1")).changes_at is None
    lease = farm.granted(agent, "d1")
    farm.pass_time(61)
    farm.sweep()
    changes_at = look(farm, waiting(agent, "d1")).changes_at
    hold_until = farm.device("d1").hold_until
    assert hold_until is not None
    assert changes_at == min(hold_until, farm.job(job_id).not_before or hold_until)
    assert farm.attempt(lease).state is AttemptState.LOST


def test_only_what_is_committed_and_may_matter_wakes_waiting_claims(farm: Farm, agent: str) -> None:
    woken: list[str] = []
    farm.sessions.work_signal.callbacks.append(lambda: woken.append("x"))

    def wakes(act: Callable[[], object]) -> bool:
        woken.clear()
        act()
        return bool(woken)

    def fail() -> None:
        with contextlib.suppress(ZeroDivisionError), farm.unit_of_work() as work:
            work.wake_claims()
            raise ZeroDivisionError

    assert not wakes(fail)
    assert not wakes(lambda: farm.hello(agent, "d1", "d2"))
    assert wakes(lambda: farm.hello(agent, report("d1", models=["another"]), "d2"))
    farm.hello(agent, "d1", "d2")
    farm.add_job()
    lease = farm.granted(agent, "d1")
    assert not wakes(lambda: farm.renew(agent, lease))
    assert wakes(lambda: farm.succeed(agent, lease))


def test_asking_whether_a_claim_is_worth_it_changes_nothing(farm: Farm, agent: str) -> None:
    def worth_it() -> bool:
        return bool(look(farm, waiting(agent, "d1")).worth_it)

    assert not worth_it()
    farm.add_job()
    assert worth_it()
    lease = farm.granted(agent, "d1")
    farm.add_job()
    assert not worth_it()
    farm.succeed(agent, lease)
    assert farm.device("d1").state is DeviceState.CLEANING
    assert worth_it()
    assert farm.device("d1").state is DeviceState.CLEANING
    assert count(farm, LeaseRow) == 1


def test_a_grant_writes_no_message_but_its_loss_and_retry_do(farm: Farm, agent: str) -> None:
    farm.add_job()
    farm.granted(agent, "d1")
    assert count(farm, OutboxRow) == 0
    farm.pass_time(61)
    farm.sweep()
    with read_only(farm.sessions) as session:
        topics = [row.topic for row in session.scalars(select(OutboxRow).order_by(OutboxRow.outbox_id))]
    assert topics == ["attempt_ended"]
