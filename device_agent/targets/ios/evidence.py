"""What is known about the end of an app on a device: facts only, gathered by the target, judged elsewhere.

Host times are monotonic seconds of the agent, device times are of the device's own clock; the two are never
compared. The rules are ADR 0018's.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from contract.model import storable_text
from device_agent.targets.ios.crash_report import CRASH_BUG_TYPE, CrashReport, crash_report
from device_agent.targets.ios.ips import ReportUnreadableError, read_ips
from device_agent.targets.ios.jetsam_report import (
    JETSAM_BUG_TYPE,
    JetsamReport,
    ReportedProcess,
    is_same_name,
    jetsam_report,
)

START_SLACK: Final = timedelta(seconds=2)
"""The start is asked of the device's clock before the launch; reports round theirs."""
_LOG_NAME_CHARS: Final = 15
"""Kernel messages cut a process's name to this or later."""


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """The process whose end is to be explained. started_at: device clock. product: e.g. `iPhone17,1`."""

    pid: int
    name: str
    started_at: datetime
    product: str | None = None


@dataclass(frozen=True, slots=True)
class ExitSeen:
    """What the system's exit callback said: a code, or a signal (Darwin's number)."""

    code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class LastMemory:
    """The app's own last word on its memory. headroom: what it could still have taken."""

    footprint_bytes: int
    headroom_bytes: int | None = None
    limit_bytes: int | None = None

    def is_near_limit(self, share: float) -> bool:
        """Whether less than `share` of the limit was left; False when that is not known.

        A headroom of 0 is what the system answers when there is no limit or it does not know.
        """
        left = self.headroom_bytes
        if not left:
            left = self.limit_bytes - self.footprint_bytes if self.limit_bytes else 0
        limit = self.limit_bytes or self.footprint_bytes + left
        return left != 0 and limit > 0 and left < share * limit


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the device's system log, with the pid of its writer."""

    pid: int
    message: str


@dataclass(frozen=True, slots=True)
class FoundReport:
    """A report file of the device, parsed."""

    file_name: str
    content: JetsamReport | CrashReport


@dataclass(frozen=True, slots=True)
class UnreadableReport:
    """A report file that could not be parsed; it may have been ours."""

    file_name: str
    problem: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything known when the verdict is asked for. None and empty mean: not observed.

    absent_observations: looks in a row, until now, that did not find the pid; seen_alive: the last look did.
    own_signal: the agent sent it. silent_s: no event for this long when the stall was declared.
    reports_listed: the reports were listed at least once after the end. gathering_over: the deadline passed.
    """

    process: OwnProcess
    detached_s: float | None = None
    reattached_s: float | None = None
    boot_before: str | None = None
    boot_after: str | None = None
    exit: ExitSeen | None = None
    absent_observations: int = 0
    seen_alive: bool = False
    log_lines: tuple[LogLine, ...] = ()
    reports: tuple[FoundReport, ...] = ()
    unreadable_reports: tuple[UnreadableReport, ...] = ()
    reports_listed: bool = False
    memory: LastMemory | None = None
    silent_s: float | None = None
    own_signal: int | None = None
    lease_expired: bool = False
    gathering_over: bool = False

    @property
    def detached(self) -> bool:
        """It was detached and has not come back."""
        return self.detached_s is not None and not self.reattached

    @property
    def reattached(self) -> bool:
        """It was detached and is back."""
        return (
            self.detached_s is not None
            and self.reattached_s is not None
            and self.reattached_s >= self.detached_s
        )

    @property
    def rebooted(self) -> bool:
        """Both boot ids are known and differ."""
        return bool(self.boot_before) and bool(self.boot_after) and self.boot_before != self.boot_after


def read_reports(
    files: Iterable[tuple[str, bytes]],
) -> tuple[tuple[FoundReport, ...], tuple[UnreadableReport, ...]]:
    """Report files, name and bytes, as evidence: the parsed and the others, in their order."""
    found: list[FoundReport] = []
    unreadable: list[UnreadableReport] = []
    for file_name, content in files:
        try:
            found.append(FoundReport(file_name, _read_report(content)))
        except ReportUnreadableError as error:
            unreadable.append(UnreadableReport(file_name, str(error)))
    return tuple(found), tuple(unreadable)


def _read_report(content: bytes) -> JetsamReport | CrashReport:
    ips = read_ips(content)
    if ips.bug_type == JETSAM_BUG_TYPE:
        return jetsam_report(ips)
    if ips.bug_type == CRASH_BUG_TYPE:
        return crash_report(ips)
    raise ReportUnreadableError(f"bug_type is {ips.bug_type[:20]!r}")


def is_ours(process: OwnProcess, pid: int | None, name: str | None) -> bool:
    """Both pid and name must match: either alone is somebody else's."""
    return pid == process.pid and is_same_name(name, process.name)


def is_of_this_run(process: OwnProcess, report: JetsamReport | CrashReport) -> bool:
    """Whether the report was taken after our start, on this device; False when it has no time.

    A paired watch leaves its reports on the device too, with pids and names of its own.
    """
    if report.taken_at is None or report.taken_at < process.started_at - START_SLACK:
        return False
    return not (process.product and report.product and process.product != report.product)


def own_victim(process: OwnProcess, report: JetsamReport) -> ReportedProcess | None:
    """Our entry among the report's victims."""
    if not is_of_this_run(process, report):
        return None
    return next((victim for victim in report.victims if is_ours(process, victim.pid, victim.name)), None)


def names_process(process: OwnProcess, report: JetsamReport | CrashReport) -> bool:
    """Whether the report is about the end of this run."""
    if isinstance(report, JetsamReport):
        return own_victim(process, report) is not None
    return is_of_this_run(process, report) and is_ours(process, report.pid, report.name)


# `memorystatus: killing_specific_process pid 300 [App] (per-process-limit 10) …`
# `memorystatus: killing process 300 [App] in high band …`
# `process App [300] exceeded mem limit: ActiveHard 1400 MB (fatal)`
_KILL_LINE: Final = re.compile(
    r"kill\w*\b[^\[\]]{0,80}?\b(?:pid|process)\s+(?P<pid>\d{1,10})\s*\[(?P<name>[^\]\n]{1,64})\]"
)
_LIMIT_LINE: Final = re.compile(
    r"(?P<name>[^\[\]\n:>]{1,64})\[(?P<pid>\d{1,10})\] exceeded mem limit[^\n]{0,80}\(fatal\)"
)
_KERNEL_PID: Final = 0
_LINE_CHARS: Final = 400


def own_memory_kills(process: OwnProcess, lines: Iterable[LogLine]) -> tuple[str, ...]:
    """Lines of the kernel that say it killed our process for memory, each cut to fit a result.

    Only the kernel's own: any program may log such words.
    """
    return tuple(
        storable_text(line.message[:_LINE_CHARS])
        for line in lines
        if line.pid == _KERNEL_PID and _says_killed(process, line.message[:_LINE_CHARS])
    )


def _says_killed(process: OwnProcess, message: str) -> bool:
    if "memorystatus" not in message and "mem limit" not in message:
        return False
    return any(
        int(found["pid"]) == process.pid and _is_log_name(found["name"].strip(), process.name)
        for pattern in (_KILL_LINE, _LIMIT_LINE)
        for found in pattern.finditer(message)
    )


def _is_log_name(reported: str, own: str) -> bool:
    words = reported.removeprefix("process ").strip()
    return words == own or (len(words) >= _LOG_NAME_CHARS and own.startswith(words))
