"""Ends of runs for tests: evidence of each kind with its verdict, and reports that are about others."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from contract.failures import FailureReason
from contract.run_end import Confidence
from device_agent.targets.ios.classifier import EndKind
from device_agent.targets.ios.evidence import (
    Evidence,
    ExitSeen,
    LastMemory,
    LogLine,
    OwnProcess,
    read_reports,
)
from tests.fakes.ips_reports import (
    APP,
    FORCE_QUIT,
    HEAT,
    OUT_OF_MEMORY,
    WATCHDOG,
    crash,
    cut,
    entry,
    jetsam,
    victim,
)

K, C, R = EndKind, Confidence, FailureReason
STARTED = datetime(2026, 11, 29, 12, 0, tzinfo=timezone(timedelta(hours=1)))
OURS = OwnProcess(pid=300, name=APP, started_at=STARTED, product="iPhone17,1")
MIB = 1 << 20
KILLED, CRASHED, QUIT = ExitSeen(None, 9), ExitSeen(None, 11), ExitSeen(0, None)
AT_LIMIT = LastMemory(1380 * MIB, headroom_bytes=20 * MIB, limit_bytes=1400 * MIB)
KILL_LINE = LogLine(
    0, "memorystatus: killing_specific_process pid 300 [Runner] (per-process-limit 100) 1400MB"
)


def reports(*contents: bytes) -> Evidence:
    """Only reports."""
    found, unreadable = read_reports((f"report-{at}.ips", content) for at, content in enumerate(contents))
    return Evidence(OURS, reports=found, unreadable_reports=unreadable, reports_listed=True)


def seen(**facts: object) -> Evidence:
    """Only these facts."""
    return replace(Evidence(OURS), **facts)


def both(evidence: Evidence, **facts: object) -> Evidence:
    """These facts too."""
    return replace(evidence, **facts)


TABLE = {
    "a report names us": (reports(jetsam(victim())), K.JETSAM, C.PROVEN, R.JETSAM),
    "one of several victims": (
        reports(jetsam(entry("Other", 299, reason="highwater"), victim())),
        *(K.JETSAM, C.PROVEN, R.JETSAM),
    ),
    "the other report is ours": (
        reports(jetsam(entry("Other", 299, reason="highwater")), jetsam(victim())),
        *(K.JETSAM, C.PROVEN, R.JETSAM),
    ),
    "killed for memory, says a crash report": (
        reports(crash(termination=OUT_OF_MEMORY)),
        *(K.JETSAM, C.PROVEN, R.JETSAM),
    ),
    "a kernel line and a SIGKILL": (seen(log_lines=(KILL_LINE,), exit=KILLED), K.JETSAM, C.PROVEN, R.JETSAM),
    "a kernel line and a pid that is gone": (
        seen(log_lines=(KILL_LINE,), absent_observations=2),
        *(K.JETSAM, C.PROVEN, R.JETSAM),
    ),
    "a kernel line alone": (seen(log_lines=(KILL_LINE,)), K.JETSAM, C.LIKELY, R.JETSAM),
    "SIGKILL at the limit": (seen(exit=KILLED, memory=AT_LIMIT), K.JETSAM, C.LIKELY, R.JETSAM),
    "gone at the limit": (seen(absent_observations=2, memory=AT_LIMIT), K.JETSAM, C.POSSIBLE, R.JETSAM),
    "a crash report": (reports(crash()), K.CRASH, C.PROVEN, R.APP_CRASH),
    "a signal of its own fault": (seen(exit=CRASHED), K.CRASH, C.LIKELY, R.APP_CRASH),
    "the watchdog": (reports(crash(termination=WATCHDOG)), K.WATCHDOG, C.PROVEN, R.WATCHDOG_KILLED),
    "the watchdog, with SIGKILL": (
        both(reports(crash(termination=WATCHDOG, signal="SIGKILL")), exit=KILLED),
        *(K.WATCHDOG, C.PROVEN, R.WATCHDOG_KILLED),
    ),
    "too hot": (reports(crash(termination=HEAT)), K.HEAT, C.PROVEN, R.THERMAL_ABORT),
    "swiped away": (reports(crash(termination=FORCE_QUIT)), K.KILLED_OUTSIDE, C.PROVEN, R.KILLED_OUTSIDE),
    "SIGKILL and no report": (seen(exit=KILLED), K.KILLED_OUTSIDE, C.LIKELY, R.KILLED_OUTSIDE),
    "SIGTERM that nobody of ours sent": (
        seen(exit=ExitSeen(None, 15)),
        *(K.KILLED_OUTSIDE, C.LIKELY, R.KILLED_OUTSIDE),
    ),
    "SIGKILL with plenty of memory left": (
        seen(exit=KILLED, memory=LastMemory(300 * MIB, 900 * MIB, 1200 * MIB)),
        *(K.KILLED_OUTSIDE, C.LIKELY, R.KILLED_OUTSIDE),
    ),
    "the agent's own SIGKILL": (seen(exit=KILLED, own_signal=9), K.STOPPED, C.LIKELY, None),
    "the agent's own SIGKILL, at the limit": (
        seen(exit=KILLED, own_signal=9, memory=AT_LIMIT),
        *(K.STOPPED, C.LIKELY, None),
    ),
    "SIGKILL where the agent sent SIGTERM": (
        seen(exit=KILLED, own_signal=15),
        *(K.KILLED_OUTSIDE, C.LIKELY, R.KILLED_OUTSIDE),
    ),
    "jetsam before the agent's own SIGKILL": (
        both(reports(jetsam(victim())), exit=KILLED, own_signal=9),
        *(K.JETSAM, C.PROVEN, R.JETSAM),
    ),
    "the lease was over": (
        seen(lease_expired=True, absent_observations=2),
        *(K.STOPPED, C.LIKELY, R.LEASE_EXPIRED),
    ),
    "exit code 0": (seen(exit=QUIT), K.EXIT, C.PROVEN, R.RUNTIME_EXIT),
    "exit code of an expired lease": (seen(exit=ExitSeen(4, 0)), K.EXIT, C.PROVEN, R.LEASE_EXPIRED),
    "exit code of wrong usage": (seen(exit=ExitSeen(2, None)), K.EXIT, C.PROVEN, R.AGENT_BUG),
    "detached": (seen(detached_s=5.0), K.DISCONNECTED, C.LIKELY, R.DEVICE_DISCONNECTED),
    "detached again": (
        seen(detached_s=9.0, reattached_s=5.0),
        *(K.DISCONNECTED, C.LIKELY, R.DEVICE_DISCONNECTED),
    ),
    "gone when it came back": (
        seen(detached_s=5.0, reattached_s=9.0, absent_observations=3),
        *(K.DISCONNECTED, C.POSSIBLE, R.DEVICE_DISCONNECTED),
    ),
    "killed, and then detached": (
        seen(exit=KILLED, detached_s=5.0),
        *(K.KILLED_OUTSIDE, C.LIKELY, R.KILLED_OUTSIDE),
    ),
    "rebooted": (
        seen(detached_s=5.0, reattached_s=60.0, boot_before="a", boot_after="b", absent_observations=2),
        *(K.REBOOT, C.PROVEN, R.DEVICE_REBOOTED),
    ),
    "came back with the same boot id": (
        seen(detached_s=5.0, reattached_s=9.0, boot_before="a", boot_after="a", absent_observations=2),
        *(K.DISCONNECTED, C.POSSIBLE, R.DEVICE_DISCONNECTED),
    ),
    "killed for memory before the reboot": (
        both(reports(jetsam(victim())), boot_before="a", boot_after="b"),
        *(K.JETSAM, C.PROVEN, R.JETSAM),
    ),
    "silent and there": (seen(silent_s=40.0, seen_alive=True), K.STALL, C.LIKELY, R.RUNTIME_STALLED),
    "silent": (seen(silent_s=40.0), K.STALL, C.POSSIBLE, R.RUNTIME_STALLED),
    "silent because it is detached": (
        seen(silent_s=40.0, detached_s=1.0),
        *(K.DISCONNECTED, C.LIKELY, R.DEVICE_DISCONNECTED),
    ),
    "gone, and nothing else": (seen(absent_observations=2), K.UNKNOWN, C.NONE, R.RUNTIME_EXIT),
    "missed once": (seen(absent_observations=1), K.UNKNOWN, C.NONE, R.RUNTIME_EXIT),
    "nothing at all": (seen(), K.UNKNOWN, C.NONE, R.RUNTIME_EXIT),
}

NOT_OURS = {
    "another process was killed": jetsam(entry("Other", 299, reason="per-process-limit"), entry()),
    "the largest process has our name but nobody says it was killed": jetsam(entry(), largestProcess=APP),
    "our name with an older pid": jetsam(victim(pid=299)),
    "our pid with another name": jetsam(entry("Other", 300, reason="per-process-limit")),
    "our name without a pid": jetsam(victim(pid=None)),
    "taken before our start": jetsam(victim(), taken="2026-11-29 11:59:50.00 +0100"),
    "taken before our start, in another zone": jetsam(victim(), taken="2026-11-29 12:30:00.00 +0200"),
    "taken at no time": jetsam(victim(), taken=""),
    "of the paired watch": jetsam(victim(), product="Watch7,1"),
    "a crash of another pid": crash(pid=299),
    "a crash of another name": crash(procName="Other"),
    "a crash before our start": crash(taken="2026-11-29 11:59:50.0000 +0100", procLaunch=None),
    "no report at all": b"nothing",
    "cut before it comes to us": cut(jetsam(entry("Other", 299, reason="highwater"), victim()), [0.6])[0],
}
