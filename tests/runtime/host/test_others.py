"""What others use: measured by difference, between any two times, and waited for with a deadline."""

import time

import pytest

from runtime.host.others import OthersMeter
from tests.fakes.machine_use import FakeMachine


@pytest.mark.parametrize("percent", [0.0, 30.0, 100.0])
def test_what_is_not_ours_is_others(machine: FakeMachine, percent: float) -> None:
    machine.others_percent = percent
    meter = OthersMeter(interval_s=0.01)
    began_ns = time.monotonic_ns()
    time.sleep(0.1)
    try:
        assert meter.percent(began_ns, time.monotonic_ns()) == pytest.approx(percent, abs=1e-6)
    finally:
        meter.close()


def test_a_quiet_machine_is_noticed_and_a_busy_one_is_not_waited_for_for_ever(machine: FakeMachine) -> None:
    meter = OthersMeter(interval_s=0.01)
    try:
        assert meter.wait_for_quiet(5.0, timeout_s=10.0, look_s=0.02)
        machine.others_percent = 60.0
        assert not meter.wait_for_quiet(5.0, timeout_s=0.1, look_s=0.02)
    finally:
        meter.close()


def test_no_time_is_no_use(machine: FakeMachine) -> None:
    meter = OthersMeter(interval_s=60.0)
    try:
        now_ns = time.monotonic_ns()
        assert meter.percent(now_ns, now_ns) == 0.0
    finally:
        meter.close()


def test_the_real_machine_is_read() -> None:
    meter = OthersMeter(interval_s=0.02)
    try:
        began_ns = time.monotonic_ns()
        busy_until_s = time.monotonic() + 0.3
        while time.monotonic() < busy_until_s:
            pass
        assert 0.0 <= meter.percent(began_ns, time.monotonic_ns()) <= 100.0
    finally:
        meter.close()
