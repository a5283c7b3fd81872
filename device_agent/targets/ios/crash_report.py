"""Crash reports (bug_type 309): the signal, and who ended the process and why, as far as the system tells."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from device_agent.targets.ios.ips import (
    Ips,
    ReportUnreadableError,
    count_of,
    object_of,
    read_ips,
    text_of,
    time_of,
)

CRASH_BUG_TYPE: Final = "309"

# Numbers of Darwin, where the app runs; the host's may differ (SIGBUS is 7 on Linux).
DARWIN_SIGNALS: Final = MappingProxyType(
    {
        **{"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGEMT": 7},
        **{"SIGFPE": 8, "SIGKILL": 9, "SIGBUS": 10, "SIGSEGV": 11, "SIGSYS": 12, "SIGPIPE": 13},
        **{"SIGALRM": 14, "SIGTERM": 15, "SIGXCPU": 24, "SIGXFSZ": 25},
    }
)
FAULT_SIGNALS: Final = frozenset({4, 5, 6, 7, 8, 10, 11, 12})
"""The process itself did something wrong; the others come from outside."""

# Codes that Apple documents for terminations (Understanding the exception types in a crash report).
WATCHDOG_CODE: Final = 0x8BADF00D
HEAT_CODE: Final = 0xC00010FF
FORCE_QUIT_CODE: Final = 0xDEADFA11
_MAX_CODE_CHARS: Final = 20


@dataclass(frozen=True, slots=True)
class Termination:
    """Who ended the process: a namespace of the system, its code, and its words."""

    namespace: str | None
    code: int | None
    indicator: str | None
    by_process: str | None

    def __str__(self) -> str:
        """For a person: `FRONTBOARD 0x8badf00d`."""
        code = f"{self.code:#x}" if self.code is not None else None
        by = f"by {self.by_process}" if self.by_process else None
        return " ".join(part for part in (self.namespace, code, self.indicator, by) if part)


@dataclass(frozen=True, slots=True)
class CrashReport:
    """One report. taken_at: device clock, when the end was captured. signal: Darwin's number."""

    incident: str | None
    taken_at: datetime | None
    launched_at: datetime | None
    os_version: str | None
    product: str | None
    name: str | None
    pid: int | None
    exception_type: str | None
    signal: int | None
    termination: Termination | None
    complete: bool


def parse_crash_report(content: bytes) -> CrashReport:
    """The report in these bytes; ReportUnreadableError for anything that is none."""
    return crash_report(read_ips(content))


def crash_report(ips: Ips) -> CrashReport:
    """The report in these documents; ReportUnreadableError when they are of another kind."""
    if ips.bug_type != CRASH_BUG_TYPE:
        raise ReportUnreadableError(f"bug_type is {ips.bug_type[:20]!r}, not {CRASH_BUG_TYPE}")
    exception = object_of(ips.body, "exception")
    return CrashReport(
        incident=text_of(ips.body, "incident") or text_of(ips.header, "incident_id"),
        taken_at=time_of(ips.body, "captureTime") or time_of(ips.header, "timestamp"),
        launched_at=time_of(ips.body, "procLaunch"),
        os_version=text_of(ips.header, "os_version"),
        product=text_of(ips.body, "modelCode"),
        name=text_of(ips.body, "procName") or text_of(ips.header, "app_name"),
        pid=count_of(ips.body, "pid"),
        exception_type=text_of(exception, "type"),
        signal=_signal(exception),
        termination=_termination(object_of(ips.body, "termination")),
        complete=ips.complete,
    )


def _signal(exception: Mapping[str, Any]) -> int | None:
    name = text_of(exception, "signal")
    return DARWIN_SIGNALS.get(name) if name is not None else count_of(exception, "signal")


def _termination(found: Mapping[str, Any]) -> Termination | None:
    if not found:
        return None
    return Termination(
        namespace=text_of(found, "namespace"),
        code=_code(found),
        indicator=text_of(found, "indicator"),
        by_process=text_of(found, "byProc"),
    )


def _code(found: Mapping[str, Any]) -> int | None:
    """A whole number; some systems write it as text, in hexadecimal."""
    text = text_of(found, "code")
    if text is None:
        return count_of(found, "code")
    try:
        return int(text, 0) if len(text) <= _MAX_CODE_CHARS else None
    except ValueError:
        return None
