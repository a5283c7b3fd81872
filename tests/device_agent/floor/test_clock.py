"""The decision clock: time and gap of one decision belong together."""

import time

import pytest

from device_agent.floor.clock import DecisionClock


class _Hands:
    """The system's two clocks, set by a test."""

    def __init__(self) -> None:
        self.monotonic_ns = 1_000
        self.asleep_ns = 0

    def pass_ns(self, duration_ns: int, *, asleep_ns: int = 0) -> None:
        self.monotonic_ns += duration_ns
        self.asleep_ns += asleep_ns


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> _Hands:
    hands = _Hands()
    monkeypatch.setattr("device_agent.floor.clock.sys.platform", "linux")
    monkeypatch.setattr(time, "monotonic_ns", lambda: hands.monotonic_ns)
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: hands.monotonic_ns + hands.asleep_ns)
    return hands


def test_the_gap_is_the_time_since_the_previous_decision(hands: _Hands) -> None:
    clock = DecisionClock()
    hands.pass_ns(30)
    clock.begin()
    clock.read()
    assert (clock.now_ns, clock.gap_ns, clock.slept_ns) == (1_030, 30, 0)


def test_a_stop_in_the_middle_of_a_tick_is_a_gap_of_the_decision_that_sees_the_later_time(
    hands: _Hands,
) -> None:
    clock = DecisionClock()
    clock.begin()
    clock.read()
    hands.pass_ns(2_000)
    clock.read()
    assert (clock.now_ns, clock.gap_ns) == (3_000, 2_000)


def test_a_gap_holds_for_the_decisions_that_follow_in_the_same_tick_and_not_for_the_next(
    hands: _Hands,
) -> None:
    clock = DecisionClock()
    hands.pass_ns(500)
    clock.begin()
    clock.read()
    hands.pass_ns(1)
    clock.read()
    assert clock.gap_ns == 500
    clock.begin()
    hands.pass_ns(2)
    clock.read()
    assert clock.gap_ns == 2


def test_time_asleep_is_what_only_the_continuous_clock_counted(hands: _Hands) -> None:
    clock = DecisionClock()
    hands.pass_ns(10, asleep_ns=7_000)
    clock.begin()
    clock.read()
    assert (clock.gap_ns, clock.slept_ns) == (10, 7_000)
