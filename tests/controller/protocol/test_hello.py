"""Hello: the agent's report and the books are brought into agreement, whatever was lost before."""

from datetime import timedelta

import pytest

from contract.states import AttemptState, DeviceState, JobState
from controller.errors import AgentOutdatedError, LeaseGoneError
from controller.protocol.hello import HELD_ELSEWHERE
from controller.protocol.operators import maintain_device, quarantine_device
from controller.states.times import FarmTimes
from tests.controller.farm import Farm, report


@pytest.fixture
def farm() -> Farm:
    return Farm()


@pytest.fixture
def agent(farm: Farm) -> str:
    return farm.add_agent()


def test_a_new_ready_device_is_ready_after_one_hello(farm: Farm, agent: str) -> None:
    answer = farm.hello(agent, report("d1"), report("d2", "untrusted"))
    assert [(entry.device_id, entry.state, entry.reasons) for entry in answer.devices] == [
        ("d1", DeviceState.READY, []),
        ("d2", DeviceState.BLOCKED, ["untrusted"]),
    ]
    assert (answer.hello_interval_s, answer.claim_wait_s) == (30, 50)


def test_the_report_replaces_what_was_known_of_a_device(farm: Farm, agent: str) -> None:
    farm.hello(agent, report("d1", labels={"rack": "1"}))
    farm.hello(agent, report("d1", labels={"rack": "2"}, models=["a", "b"], memory_bytes=7, generation=3))
    device = farm.device("d1")
    assert (device.labels, device.models, device.memory_bytes) == ({"rack": "2"}, ["a", "b"], 7)
    assert device.generation == 3


def test_an_unknown_contract_version_is_outdated_whatever_else_is_said(farm: Farm, agent: str) -> None:
    with pytest.raises(AgentOutdatedError, match=r"'99\.0'"):
        farm.hello(agent, "d1", contract_version="99.0")


def test_live_leases_go_on_and_all_others_are_to_be_abandoned(farm: Farm, agent: str) -> None:
    farm.hello(agent, "d1", "d2")
    farm.add_job()
    farm.add_job()
    gone, live = farm.granted(agent, "d1"), farm.granted(agent, "d2")
    farm.fail(agent, gone, None)
    forged = live.model_copy(update={"fence": live.fence + 1})
    answer = farm.hello(agent, "d1", "d2", leases=(gone, live, forged))
    assert answer.continue_leases == [live.lease_id]
    assert answer.abandon_leases == [gone.lease_id, forged.lease_id]


def test_a_held_device_is_free_once_the_hold_is_over_and_its_agent_has_let_go(farm: Farm, agent: str) -> None:
    farm.hello(agent, "d1")
    farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.pass_time(61)
    farm.hello(agent, "d1")
    assert farm.device("d1").state is DeviceState.HELD
    farm.pass_time(10)
    farm.hello(agent, "d1", leases=(lease,))
    assert farm.device("d1").state is DeviceState.HELD
    farm.hello(agent, "d1")
    assert farm.device("d1").state is DeviceState.READY


def test_a_hello_that_was_overtaken_changes_no_device(farm: Farm, agent: str) -> None:
    sent_early = farm.now
    farm.pass_time(20)
    farm.hello(agent, report("d1", "untrusted"))
    answer = farm.hello(agent, "d1", sent_at=sent_early)
    assert answer.devices == []
    assert farm.device("d1").state is DeviceState.BLOCKED


def test_an_agent_whose_clock_was_set_back_is_still_heard(farm: Farm, agent: str) -> None:
    farm.hello(agent, report("d1", "untrusted"))
    farm.hello(agent, "d1", sent_at=farm.now - timedelta(hours=1))
    assert farm.device("d1").state is DeviceState.READY


def test_a_device_that_is_no_longer_reported_is_absent_after_the_debounce(farm: Farm, agent: str) -> None:
    farm.hello(agent, "d1", "d2")
    farm.pass_time(15)
    farm.hello(agent, "d2")
    assert farm.device("d1").state is DeviceState.ABSENT
    farm.pass_time(10)
    farm.hello(agent)
    assert farm.device("d2").state is DeviceState.READY
    farm.hello(agent, "d1", "d2")
    assert farm.device("d1").state is DeviceState.READY


def test_a_device_pulled_in_the_middle_ends_its_attempt_and_is_held_when_it_is_back(
    farm: Farm, agent: str
) -> None:
    farm.hello(agent, "d1")
    job_id = farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.pass_time(20)
    farm.hello(agent, leases=(lease,))
    attempt = farm.attempt(lease)
    assert (attempt.state, attempt.reason) == (AttemptState.ERRORED, "device_disconnected")
    assert farm.device("d1").state is DeviceState.ABSENT
    assert farm.job(job_id).state is JobState.QUEUED
    farm.hello(agent, "d1")
    assert farm.device("d1").state is DeviceState.HELD
    farm.pass_time(50)
    farm.hello(agent, "d1")
    assert farm.device("d1").state is DeviceState.READY


def test_a_device_that_two_agents_see_stays_with_the_one_that_has_it(farm: Farm, agent: str) -> None:
    other = farm.add_agent()
    farm.hello(agent, "d1")
    answer = farm.hello(other, "d1")
    assert answer.devices[0].reasons == [HELD_ELSEWHERE]
    assert farm.device("d1").device_agent_id == agent
    farm.add_job()
    assert farm.claim(other, "d1") is None


def test_a_lost_device_moves_to_the_agent_that_sees_it_and_its_lease_ends(farm: Farm, agent: str) -> None:
    other = farm.add_agent()
    farm.hello(agent, "d1")
    farm.add_job(max_attempts=3)
    lease = farm.granted(agent, "d1")
    farm.pass_time(60)
    farm.hello(other, "d1")
    device = farm.device("d1")
    assert (device.device_agent_id, device.fence) == (other, lease.fence + 1)
    assert farm.attempt(lease).state is AttemptState.LOST
    # The old agent may still touch it: nothing is granted before the hold is over.
    assert farm.claim(other, "d1") is None
    farm.pass_time(10)
    farm.hello(other, "d1")
    assert farm.granted(other, "d1").fence == lease.fence + 2
    # A late result of the old agent has a fence that is no longer the device's.
    farm.hello(agent)
    assert farm.finish(agent, lease, "failed").state == "orphaned"


def test_a_live_lease_is_revoked_when_its_device_turns_up_elsewhere() -> None:
    farm = Farm(times=FarmTimes(agent_offline_s=10))
    agent, other = farm.add_agent(), farm.add_agent()
    farm.hello(agent, "d1")
    farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.pass_time(11)
    farm.sweep()
    assert farm.device("d1").state is DeviceState.LOST
    farm.hello(other, "d1")
    attempt = farm.attempt(lease)
    assert (attempt.state, attempt.reason) == (AttemptState.LOST, "device_disconnected")
    with pytest.raises(LeaseGoneError):
        farm.renew(agent, lease)
    assert farm.claim(other, "d1") is None
    farm.pass_time(60)
    farm.hello(other, "d1")
    assert farm.granted(other, "d1").device_id == "d1"


def test_a_lost_device_is_leased_again_when_its_agent_is_back_in_time() -> None:
    farm = Farm(times=FarmTimes(agent_offline_s=10))
    agent = farm.add_agent()
    farm.hello(agent, "d1")
    farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.renew(agent, lease)
    farm.pass_time(11)
    farm.sweep()
    assert farm.device("d1").state is DeviceState.LOST
    answer = farm.hello(agent, "d1", leases=(lease,))
    assert answer.continue_leases == [lease.lease_id]
    assert farm.device("d1").state is DeviceState.LEASED
    farm.succeed(agent, lease)
    assert farm.device("d1").state is DeviceState.CLEANING


def test_a_new_operating_system_is_checked_before_the_next_grant(farm: Farm, agent: str) -> None:
    farm.hello(agent, "d1")
    farm.hello(agent, report("d1", "checking", os_version="7"))
    assert farm.device("d1").state is DeviceState.CHECKING
    farm.hello(agent, report("d1", os_version="7"))
    assert farm.device("d1").state is DeviceState.READY


@pytest.mark.parametrize("decide", [quarantine_device, maintain_device])
def test_a_persons_decision_and_reason_survive_hellos_and_another_agent(
    farm: Farm, agent: str, decide: object
) -> None:
    farm.hello(agent, "d1")
    with farm.unit_of_work() as work:
        decide(work, "d1", "someone", "screen cracked")
    state = farm.device("d1").state
    farm.hello(agent, report("d1", "untrusted"))
    farm.pass_time(120)
    farm.sweep()
    other = farm.add_agent()
    farm.hello(other, "d1")
    device = farm.device("d1")
    assert (device.state, device.reasons, device.device_agent_id) == (state, ["screen cracked"], other)
