"""What evidence shows, one question a function: lines for a person when the answer is yes, else nothing.

Every answer that is yes stays yes when more becomes known: no function asks for the absence of anything.
"""

from collections.abc import Callable, Iterator
from typing import Final

from device_agent.targets.ios.crash_report import (
    FAULT_SIGNALS,
    FORCE_QUIT_CODE,
    HEAT_CODE,
    WATCHDOG_CODE,
    CrashReport,
)
from device_agent.targets.ios.evidence import (
    Evidence,
    FoundReport,
    is_of_this_run,
    is_ours,
    own_memory_kills,
    own_victim,
)
from device_agent.targets.ios.jetsam_report import JetsamReport, is_same_name

Lines = tuple[str, ...]

SIGKILL: Final = 9
NEAR_LIMIT_SHARE: Final = 0.1
"""Less than this share of the limit was left: then a SIGKILL is likely one for memory."""
GONE_OBSERVATIONS: Final = 2
"""One look that misses a pid may be a snapshot in between; two in a row are not."""
_MIB: Final = 1 << 20


def jetsam_report(evidence: Evidence) -> Lines:
    """A JetsamEvent names our pid and name as a victim, after our start."""
    return tuple(
        f"{found.file_name}: {victim.name} (pid {victim.pid}) was killed, {victim.reason}, "
        f"{victim.resident_pages} pages of {found.content.memory.page_size_bytes} B"
        for found in evidence.reports
        if isinstance(found.content, JetsamReport)
        and (victim := own_victim(evidence.process, found.content)) is not None
    )


def _is_watchdog(report: CrashReport) -> bool:
    return report.termination is not None and report.termination.code == WATCHDOG_CODE


def _is_heat(report: CrashReport) -> bool:
    return report.termination is not None and report.termination.code == HEAT_CODE


def _is_force_quit(report: CrashReport) -> bool:
    return report.termination is not None and report.termination.code == FORCE_QUIT_CODE


def _is_jetsam(report: CrashReport) -> bool:
    return report.termination is not None and (report.termination.namespace or "").upper() == "JETSAM"


def _is_plain(report: CrashReport) -> bool:
    return not any(is_kind(report) for is_kind in (_is_watchdog, _is_heat, _is_force_quit, _is_jetsam))


def _own_crashes(evidence: Evidence, is_kind: Callable[[CrashReport], bool]) -> Iterator[str]:
    for found in evidence.reports:
        report = found.content
        if not isinstance(report, CrashReport) or not is_ours(evidence.process, report.pid, report.name):
            continue
        if is_of_this_run(evidence.process, report) and is_kind(report):
            what = str(report.termination or "") or report.exception_type or f"signal {report.signal}"
            yield f"{found.file_name}: {report.name} (pid {report.pid}) ended by {what}"


def crash_report_of_jetsam(evidence: Evidence) -> Lines:
    """Some systems write the memory kill as a crash whose termination says JETSAM."""
    return tuple(_own_crashes(evidence, _is_jetsam))


def watchdog_report(evidence: Evidence) -> Lines:
    """The system's watchdog ended it: 0x8badf00d."""
    return tuple(_own_crashes(evidence, _is_watchdog))


def heat_report(evidence: Evidence) -> Lines:
    """The system ended it because the device was too hot: 0xc00010ff."""
    return tuple(_own_crashes(evidence, _is_heat))


def force_quit_report(evidence: Evidence) -> Lines:
    """A person swiped it away: 0xdeadfa11."""
    return tuple(_own_crashes(evidence, _is_force_quit))


def crash_report(evidence: Evidence) -> Lines:
    """A crash report that names our pid and name, for no cause of its own kind."""
    return tuple(_own_crashes(evidence, _is_plain))


def kernel_line(evidence: Evidence) -> Lines:
    """The kernel logged that it killed our process for memory."""
    return tuple(f"kernel: {line}" for line in own_memory_kills(evidence.process, evidence.log_lines))


def kernel_line_and_end(evidence: Evidence) -> Lines:
    """The same, and the process did end: two witnesses."""
    ended = _sigkill(evidence) or gone(evidence)
    return (*kernel_line(evidence), *ended) if ended and kernel_line(evidence) else ()


def exit_code(evidence: Evidence) -> Lines:
    """The system says with which code it exited."""
    if evidence.exit is None or evidence.exit.code is None or evidence.exit.signal:
        return ()
    return (f"the system reports exit code {evidence.exit.code}",)


def boot_changed(evidence: Evidence) -> Lines:
    """The device's boot id is another one than at the start."""
    if not evidence.rebooted:
        return ()
    return (f"the boot id was {evidence.boot_before} and is {evidence.boot_after}",)


def own_signal_arrived(evidence: Evidence) -> Lines:
    """It ended by the signal that the agent had sent."""
    signal = _signal(evidence)
    if evidence.own_signal is None or signal != evidence.own_signal:
        return ()
    return (f"it ended by signal {signal}, which the agent had sent",)


def own_signal_sent(evidence: Evidence) -> Lines:
    """The agent sent a signal; what came of it was not seen."""
    return (f"the agent sent signal {evidence.own_signal}",) if evidence.own_signal is not None else ()


def fault_signal(evidence: Evidence) -> Lines:
    """It ended by a signal that a process earns by its own fault."""
    signal = _signal(evidence)
    return (f"the system reports signal {signal}",) if signal in FAULT_SIGNALS else ()


def outside_signal(evidence: Evidence) -> Lines:
    """It ended by a signal that somebody sent."""
    signal = _signal(evidence)
    return (f"the system reports signal {signal}",) if signal and signal not in FAULT_SIGNALS else ()


def sigkill_at_limit(evidence: Evidence) -> Lines:
    """SIGKILL, and by its own last word it was about to reach its memory limit."""
    near, killed = _near_limit(evidence), _sigkill(evidence)
    return (*killed, *near) if near and killed else ()


def gone(evidence: Evidence) -> Lines:
    """The pid is gone."""
    if evidence.absent_observations < GONE_OBSERVATIONS:
        return ()
    return (f"{evidence.absent_observations} looks in a row did not find pid {evidence.process.pid}",)


def gone_with_lease(evidence: Evidence) -> Lines:
    """The lease had expired, at which the app ends itself, and the pid is gone."""
    missed = gone(evidence)
    return ("its lease had expired", *missed) if evidence.lease_expired and missed else ()


def gone_at_limit(evidence: Evidence) -> Lines:
    """The pid is gone, and by its own last word it was about to reach its memory limit."""
    near, missed = _near_limit(evidence), gone(evidence)
    return (*missed, *near) if near and missed else ()


def gone_while_detached(evidence: Evidence) -> Lines:
    """It was not there when the device came back: a cut connection may end what was launched over it."""
    missed = gone(evidence)
    return ("the device was away for a while", *missed) if evidence.detached_s is not None and missed else ()


def detached(evidence: Evidence) -> Lines:
    """The device is away; the app may go on there."""
    return ("the device was detached and has not come back",) if evidence.detached else ()


def silent(evidence: Evidence) -> Lines:
    """No event for too long."""
    return (f"no event for {evidence.silent_s:.0f} s",) if evidence.silent_s is not None else ()


def silent_but_alive(evidence: Evidence) -> Lines:
    """No event for too long although the process is there."""
    quiet = silent(evidence)
    return (*quiet, f"pid {evidence.process.pid} is still there") if quiet and evidence.seen_alive else ()


def last_sight(evidence: Evidence) -> Lines:
    """Whatever little is known; never empty."""
    return gone(evidence) or ("the stream ended; nothing says why",)


def missing(evidence: Evidence) -> Lines:
    """What was not seen and might decide. A report that is missing is never proof of anything."""
    gaps: list[str] = []
    if not evidence.reports_listed:
        gaps.append("the device's reports were not listed after the end")
    elif not any(_names_us(evidence, found) for found in evidence.reports):
        gaps.append("no report names our pid and name; they are late, rate limited or moved at times")
    gaps += [f"{each.file_name} could not be read: {each.problem}" for each in evidence.unreadable_reports]
    gaps += [
        f"{found.file_name} is cut; our process may have stood in what is missing"
        for found in evidence.reports
        if not found.content.complete and not _names_us(evidence, found)
    ]
    gaps += _lookalikes(evidence)
    if evidence.exit is None:
        gaps.append("the system did not report how the process ended")
    if evidence.boot_after is None:
        gaps.append("the boot id after the end is not known")
    if evidence.memory is None:
        gaps.append("the app never told its footprint")
    return tuple(gaps)


def _names_us(evidence: Evidence, found: FoundReport) -> bool:
    report, process = found.content, evidence.process
    if isinstance(report, JetsamReport):
        return own_victim(process, report) is not None
    return is_ours(process, report.pid, report.name) and is_of_this_run(process, report)


def _lookalikes(evidence: Evidence) -> Iterator[str]:
    """Reports about our name that are not about us: another pid, an earlier run, no pid at all."""
    process = evidence.process
    for found in evidence.reports:
        report = found.content
        if _names_us(evidence, found):
            continue
        about = report.victims if isinstance(report, JetsamReport) else (report,)
        pids = [each.pid for each in about if is_same_name(each.name, process.name)]
        if pids:
            whose = "no pid" if pids[0] is None else f"pid {pids[0]}"
            yield f"{found.file_name} is about {process.name} with {whose}, taken {report.taken_at}: not ours"


def _signal(evidence: Evidence) -> int | None:
    return evidence.exit.signal if evidence.exit is not None else None


def _sigkill(evidence: Evidence) -> Lines:
    return ("the system reports signal 9",) if _signal(evidence) == SIGKILL else ()


def _near_limit(evidence: Evidence) -> Lines:
    memory = evidence.memory
    if memory is None or not memory.is_near_limit(NEAR_LIMIT_SHARE):
        return ()
    footprint = f"its last footprint was {memory.footprint_bytes / _MIB:.0f} MiB"
    if memory.headroom_bytes is not None:
        return (f"{footprint}, with {memory.headroom_bytes / _MIB:.0f} MiB left",)
    return (f"{footprint} of {(memory.limit_bytes or 0) / _MIB:.0f} MiB",)
