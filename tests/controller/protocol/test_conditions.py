"""Heat and charge: states of a device that pass by themselves, with their times, and are not a fault."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from contract.device_reasons import BATTERY_REASONS, HEAT_REASONS
from contract.failures import FailureReason
from contract.states import DeviceState
from controller.db.models import DeviceTransitionRow
from controller.db.session import read_only
from controller.scheduling.facts import device_facts
from controller.scheduling.placement import waits_for
from controller.states.times import FarmTimes
from tests.controller.farm import Farm, report


@pytest.fixture
def farm() -> Farm:
    return Farm()


@pytest.fixture
def agent(farm: Farm) -> str:
    return farm.add_agent()


def history(farm: Farm) -> list[tuple[str, float]]:
    """States that were reached, each with the seconds since the first."""
    with read_only(farm.sessions) as session:
        rows = session.scalars(select(DeviceTransitionRow).order_by(DeviceTransitionRow.transition_id)).all()
        return [(row.to_state.value, (row.at - rows[0].at).total_seconds()) for row in rows]


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        *((reason, DeviceState.COOLING) for reason in sorted(HEAT_REASONS)),
        *((reason, DeviceState.CHARGING) for reason in sorted(BATTERY_REASONS)),
    ],
)
def test_a_ready_device_waits_for_the_condition_and_returns_by_itself_with_its_times_kept(
    farm: Farm, agent: str, reason: str, state: DeviceState
) -> None:
    farm.hello(agent, "d1")
    farm.pass_time(30)
    farm.hello(agent, report("d1", reason))
    assert (farm.device("d1").state, farm.device("d1").reasons) == (state, [reason])
    farm.add_job()
    assert waits_for(device_facts(farm.device("d1")), farm.now) == (f"it is {state.value} ({reason})",)
    farm.pass_time(60)
    farm.hello(agent, report("d1", reason))
    farm.pass_time(30)
    farm.hello(agent, "d1")
    assert (farm.device("d1").state, farm.device("d1").reasons) == (DeviceState.READY, [])
    assert history(farm)[-3:] == [("ready", 0.0), (state.value, 30.0), ("ready", 120.0)]
    assert farm.granted(agent, "d1").device_id == "d1"


def test_a_device_that_is_plugged_in_hot_cools_and_is_never_quarantined_for_being_slow(
    farm: Farm, agent: str
) -> None:
    farm.hello(agent, report("d1", "hot"))
    assert farm.device("d1").state is DeviceState.COOLING
    farm.pass_time(FarmTimes().preparing_s + 1)
    farm.hello(agent, report("d1", "hot"))
    farm.sweep()
    assert farm.device("d1").state is DeviceState.COOLING


def test_a_run_that_heat_has_ended_cools_down_instead_of_failing_to_recover(farm: Farm, agent: str) -> None:
    farm.hello(agent, "d1")
    farm.add_job(max_attempts=3)
    lease = farm.granted(agent, "d1")
    farm.fail(agent, lease, FailureReason.THERMAL_ABORT)
    assert farm.device("d1").state is DeviceState.RECOVERING
    farm.hello(agent, report("d1", "thermal_abort"))
    assert farm.device("d1").state is DeviceState.COOLING
    farm.hello(agent, "d1")
    assert farm.device("d1").state is DeviceState.READY


def test_a_device_rests_after_a_run_before_it_is_ready(farm: Farm, agent: str) -> None:
    farm.hello(agent, "d1")
    farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.succeed(agent, lease)
    farm.hello(agent, report("d1", "cool_down", ready_in_s=25.0))
    assert farm.device("d1").state is DeviceState.COOLING
    farm.pass_time(25)
    farm.hello(agent, "d1")
    assert farm.device("d1").state is DeviceState.READY


def test_heat_of_one_device_stops_nobody_else(farm: Farm, agent: str) -> None:
    farm.hello(agent, report("d1", "hot"), "d2")
    farm.add_job()
    assert farm.granted(agent, "d1", "d2").device_id == "d2"


def test_what_never_cools_is_quarantined_at_the_deadline_and_looked_at_again(farm: Farm, agent: str) -> None:
    farm.hello(agent, report("d1", "hot"))
    farm.pass_time(FarmTimes().condition_s + 1)
    farm.hello(agent, report("d1", "hot"))
    farm.sweep()
    assert farm.device("d1").state is DeviceState.QUARANTINED
    farm.pass_time(FarmTimes().recheck_s[0] + 1)
    farm.sweep()
    farm.hello(agent, report("d1", "hot"))
    assert farm.device("d1").state is DeviceState.COOLING


@pytest.mark.parametrize(
    ("ready_in_s", "says"),
    [(25.0, "it is cooling (cool_down), 25 s more"), (600.0, "it is cooling (cool_down), 10 min more")],
)
def test_a_waiting_job_is_told_how_long_it_takes(
    farm: Farm, agent: str, ready_in_s: float, says: str
) -> None:
    farm.hello(agent, report("d1", "cool_down", ready_in_s=ready_in_s))
    assert waits_for(device_facts(farm.device("d1")), farm.now) == (says,)
    late = farm.now + timedelta(seconds=ready_in_s)
    assert waits_for(device_facts(farm.device("d1")), late) == ("it is cooling (cool_down)",)
    farm.hello(agent, "d1")
    assert farm.device("d1").ready_at is None


@pytest.mark.parametrize("reason", ["low_power_mode", "screen_off"])
def test_a_setting_that_only_a_person_can_change_blocks(farm: Farm, agent: str, reason: str) -> None:
    farm.hello(agent, report("d1", reason))
    assert farm.device("d1").state is DeviceState.BLOCKED
    farm.hello(agent, "d1")
    assert farm.device("d1").state is DeviceState.READY
