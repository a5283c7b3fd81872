"""JetsamEvent reports (bug_type 298): who was killed for memory, and how much each process held.

A process with a `reason` was killed. There may be several, or none that the excerpt shows; `largestProcess`
is only the largest. Shapes differ from iOS 11 to 27, audioOS and macOS: whatever is absent is None, whatever
is unknown is left alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from device_agent.targets.ios.ips import (
    Ips,
    ReportUnreadableError,
    count_of,
    object_of,
    read_ips,
    seconds_of,
    text_of,
    time_of,
)

JETSAM_BUG_TYPE: Final = "298"
NAME_CHARS: Final = 32
"""Longer names of processes are cut to this in a report."""
MAX_PROCESSES: Final = 5000
_MAX_STATES: Final = 32
# The key itself ends in a colon on every version seen; the plain one is read too, should that be mended.
_FREEZE_KEYS: Final = ("freeze_skip_reason:", "freeze_skip_reason")


@dataclass(frozen=True, slots=True)
class ReportedProcess:
    """One process. reason: why it was killed, None for one that was not. Pages: of MemoryStatus.page_size."""

    name: str | None
    pid: int | None
    reason: str | None
    resident_pages: int | None
    lifetime_max_pages: int | None
    """The largest it ever was, says the system; seen smaller than resident_pages."""
    priority: int | None
    states: tuple[str, ...]
    cpu_time_s: float | None
    binary_uuid: str | None
    """Of the program, not of the process: two processes may share it."""
    freeze_skip_reason: str | None

    @property
    def was_killed(self) -> bool:
        """Whether the report names it as a victim."""
        return self.reason is not None


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """The device's memory at the snapshot."""

    page_size_bytes: int | None
    free_pages: int | None
    active_pages: int | None
    inactive_pages: int | None
    wired_pages: int | None
    compressor_pages: int | None
    uncompressed_pages: int | None
    """What the compressor's pages would take uncompressed."""


@dataclass(frozen=True, slots=True)
class JetsamReport:
    """One report. taken_at: device clock. complete False: it was cut, or had more than MAX_PROCESSES."""

    incident: str | None
    taken_at: datetime | None
    os_version: str | None
    product: str | None
    largest_process: str | None
    memory: MemoryStatus
    processes: tuple[ReportedProcess, ...]
    processes_left_out: int
    complete: bool

    @property
    def victims(self) -> tuple[ReportedProcess, ...]:
        """The processes that were killed; empty when the report does not show whom it is about."""
        return tuple(process for process in self.processes if process.was_killed)

    def footprint_bytes(self, process: ReportedProcess) -> int | None:
        """What the process held; None when pages or their size are not told."""
        if process.resident_pages is None or self.memory.page_size_bytes is None:
            return None
        return process.resident_pages * self.memory.page_size_bytes


def parse_jetsam_report(content: bytes) -> JetsamReport:
    """The report in these bytes; ReportUnreadableError for anything that is none."""
    return jetsam_report(read_ips(content))


def jetsam_report(ips: Ips) -> JetsamReport:
    """The report in these documents; ReportUnreadableError when they are of another kind."""
    if ips.bug_type != JETSAM_BUG_TYPE:
        raise ReportUnreadableError(f"bug_type is {ips.bug_type[:20]!r}, not {JETSAM_BUG_TYPE}")
    listed = ips.body.get("processes")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    left_out = max(0, len(entries) - MAX_PROCESSES)
    return JetsamReport(
        incident=text_of(ips.body, "incident") or text_of(ips.header, "incident_id"),
        # The body's time has hundredths where the header's is rounded.
        taken_at=time_of(ips.body, "date") or time_of(ips.header, "timestamp"),
        os_version=text_of(ips.header, "os_version") or text_of(ips.body, "build"),
        product=text_of(ips.body, "product"),
        largest_process=text_of(ips.body, "largestProcess"),
        memory=_memory_status(object_of(ips.body, "memoryStatus")),
        processes=tuple(reported_process(entry) for entry in entries[:MAX_PROCESSES]),
        processes_left_out=left_out,
        complete=ips.complete and left_out == 0,
    )


def _memory_status(status: Mapping[str, Any]) -> MemoryStatus:
    pages = object_of(status, "memoryPages")
    return MemoryStatus(
        page_size_bytes=count_of(status, "pageSize"),
        free_pages=count_of(pages, "free"),
        active_pages=count_of(pages, "active"),
        inactive_pages=count_of(pages, "inactive"),
        wired_pages=count_of(pages, "wired"),
        compressor_pages=count_of(status, "compressorSize"),
        uncompressed_pages=count_of(status, "uncompressed"),
    )


def reported_process(entry: Mapping[str, Any]) -> ReportedProcess:
    """One entry of `processes`; members of an unexpected type count as absent."""
    states = entry.get("states")
    return ReportedProcess(
        name=text_of(entry, "name"),
        pid=count_of(entry, "pid"),
        reason=text_of(entry, "reason") or None,
        resident_pages=count_of(entry, "rpages"),
        lifetime_max_pages=count_of(entry, "lifetimeMax"),
        priority=count_of(entry, "priority"),
        states=tuple(
            state
            for state in (states if isinstance(states, list) else [])[:_MAX_STATES]
            if isinstance(state, str)
        ),
        cpu_time_s=seconds_of(entry, "cpuTime"),
        binary_uuid=text_of(entry, "uuid"),
        freeze_skip_reason=next(
            (text for key in _FREEZE_KEYS if (text := text_of(entry, key)) is not None), None
        ),
    )


def is_same_name(reported: str | None, own: str) -> bool:
    """Whether a report means this process name, which it cuts at NAME_CHARS characters or bytes."""
    if not reported or not own:
        return False
    cut_bytes = own.encode("utf-8", "replace")[:NAME_CHARS].decode("utf-8", "ignore")
    return reported in {own, own[:NAME_CHARS], cut_bytes}
