"""What an agent's report does to a device, for every state and every report."""

from itertools import product

import pytest

from contract.states import DeviceState
from controller.protocol.observation import Condition, Sight, causes_of, condition_of
from controller.states.devices import DEVICE_MACHINE

_D = DeviceState
SIGHTS = [Sight(condition, *flags) for condition in Condition for flags in product((False, True), repeat=3)]


def end_of(state: DeviceState, sight: Sight) -> DeviceState:
    """Where the walk ends."""
    for cause in causes_of(state, sight):
        state = DEVICE_MACHINE.next_state(state, cause)
    return state


@pytest.mark.parametrize("state", _D)
def test_every_walk_follows_the_table_and_ends(state: DeviceState) -> None:
    for sight in SIGHTS:
        end = end_of(state, sight)
        # A second look at the same sight finds nothing left to do.
        assert causes_of(end, sight) == (), sight


@pytest.mark.parametrize(
    "state", [_D.UNKNOWN, _D.ABSENT, _D.LOST, _D.BLOCKED, _D.COOLING, _D.CHARGING, _D.CLEANING, _D.RECOVERING]
)
def test_a_usable_device_becomes_ready_in_one_report(state: DeviceState) -> None:
    assert end_of(state, Sight(Condition.USABLE)) is _D.READY


@pytest.mark.parametrize("state", [_D.LEASED, _D.RESERVED, _D.QUARANTINED, _D.MAINTENANCE, _D.RETIRED])
def test_no_report_moves_a_device_that_somebody_else_decides_about(state: DeviceState) -> None:
    assert all(causes_of(state, sight) == () for sight in SIGHTS)


def test_nobody_becomes_ready_while_an_earlier_holder_may_still_touch_it() -> None:
    for state in (_D.HELD, _D.LOST, _D.ABSENT):
        assert end_of(state, Sight(Condition.USABLE, on_hold=True)) is _D.HELD


def test_a_device_whose_agent_still_believes_in_a_lease_is_not_ready() -> None:
    for state in (_D.HELD, _D.LOST, _D.CLEANING, _D.RECOVERING, _D.PREPARING, _D.CHECKING):
        assert end_of(state, Sight(Condition.USABLE, busy=True)) is not _D.READY


def test_a_lost_device_with_a_live_lease_is_leased_again() -> None:
    assert end_of(_D.LOST, Sight(Condition.USABLE, busy=True, lease_live=True)) is _D.LEASED


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        (Condition.BLOCKED, _D.BLOCKED),
        (Condition.HOT, _D.COOLING),
        (Condition.BATTERY_LOW, _D.CHARGING),
        (Condition.NOT_YET, _D.PREPARING),
    ],
)
def test_a_ready_device_leaves_ready_for_what_is_wrong_with_it(
    condition: Condition, state: DeviceState
) -> None:
    assert end_of(_D.READY, Sight(condition)) is state


@pytest.mark.parametrize(
    ("reasons", "condition"),
    [
        ({"untrusted"}, Condition.BLOCKED),
        ({"never_heard_of"}, Condition.BLOCKED),
        ({"hot", "untrusted"}, Condition.BLOCKED),
        ({"thermal_abort"}, Condition.HOT),
        ({"battery_low", "thermal_abort"}, Condition.HOT),
        ({"battery_low"}, Condition.BATTERY_LOW),
        ({"cleaning"}, Condition.NOT_YET),
        (set(), Condition.NOT_YET),
    ],
)
def test_reasons_become_one_condition_and_a_persons_turn_comes_first(
    reasons: set[str], condition: Condition
) -> None:
    assert condition_of(False, frozenset(reasons)) is condition
    assert condition_of(True, frozenset(reasons)) is Condition.USABLE
