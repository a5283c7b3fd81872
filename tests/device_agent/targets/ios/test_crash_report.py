"""Crash reports: signal, termination and times, whatever else is in them."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agent.targets.ios.crash_report import (
    FAULT_SIGNALS,
    WATCHDOG_CODE,
    Termination,
    parse_crash_report,
)
from device_agent.targets.ios.ips import ReportUnreadableError
from tests.fakes.ips_reports import HEAT, WATCHDOG, crash, jetsam, victim

FULL = crash()


def test_who_when_and_by_which_signal() -> None:
    report = parse_crash_report(FULL)
    assert (report.name, report.pid, report.signal, report.exception_type) == (
        "Runner",
        300,
        11,
        "EXC_BAD_ACCESS",
    )
    assert report.taken_at == datetime(2026, 11, 29, 11, 10, 0, 250000, UTC)
    assert report.launched_at == datetime(2026, 11, 29, 11, 0, 1, tzinfo=UTC)
    assert (report.product, report.complete) == ("iPhone17,1", True)


@pytest.mark.parametrize(
    ("termination", "code", "words"),
    [
        (WATCHDOG, WATCHDOG_CODE, "FRONTBOARD 0x8badf00d"),
        (HEAT, 0xC00010FF, "SPRINGBOARD 0xc00010ff"),
        ({"code": "nonsense", "namespace": "X"}, None, "X"),
        ({"code": -1, "byProc": "backboardd"}, None, "by backboardd"),
        ({"code": "9" * 30, "namespace": "X"}, None, "X"),
    ],
)
def test_a_termination_says_who_ended_it(termination: dict[str, Any], code: int | None, words: str) -> None:
    found = parse_crash_report(crash(termination=termination)).termination
    assert isinstance(found, Termination)
    assert (found.code, str(found)) == (code, words)


@pytest.mark.parametrize(
    ("signal", "number"), [("SIGBUS", 10), ("SIGABRT", 6), ("SIGKILL", 9), ("SIGWHAT", None), ("", None)]
)
def test_signals_have_darwins_numbers(signal: str, number: int | None) -> None:
    assert parse_crash_report(crash(signal=signal)).signal == number
    assert 9 not in FAULT_SIGNALS


def test_a_report_without_the_optional_members_is_read() -> None:
    report = parse_crash_report(
        crash(exception=None, termination={}, captureTime=None, procLaunch=None, pid=None)
    )
    assert (report.signal, report.pid, report.launched_at) == (None, None, None)
    assert report.taken_at is not None


def test_another_kind_of_report_is_refused() -> None:
    with pytest.raises(ReportUnreadableError, match="298"):
        parse_crash_report(jetsam(victim()))


@settings(max_examples=200)
@given(st.integers(0, len(FULL)), st.integers(0, 8), st.binary(max_size=6), st.integers(0, len(FULL)))
def test_a_report_changed_or_cut_anywhere_is_a_report_or_the_one_error(
    start: int, length: int, inserted: bytes, end: int
) -> None:
    content = (FULL[:start] + inserted + FULL[start + length :])[: max(start, end)]
    with suppress(ReportUnreadableError):
        parse_crash_report(content)
