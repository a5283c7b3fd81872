"""The agent's own machine: what is free, what the agent holds, and how busy others keep the processor."""

import shutil
import time
from pathlib import Path

import psutil

from contract.agent_api import HostHealth


def host_health(home: Path, spool_backlog_events: int) -> HostHealth:
    """Now; `home` says which disk counts."""
    own = psutil.Process()
    return HostHealth(
        disk_free_bytes=shutil.disk_usage(home).free,
        open_files=own.num_fds(),
        resident_bytes=own.memory_info().rss,
        spool_backlog_events=spool_backlog_events,
    )


class OthersCpu:
    """Processor use of everything but the agent and its runtime, in percent of the whole machine.

    Each `percent()` covers the time since the one before; None at the first, and when a clock stood still.
    """

    def __init__(self) -> None:
        """Nothing is known before the second reading."""
        self._before: tuple[float, float, float] | None = None

    def percent(self, runtime_pid: int | None) -> float | None:
        """0 to 100. runtime_pid: its processor time is ours, not others'."""
        machine = psutil.cpu_times()
        # guest time is part of user time already, and what waits for the disk is idle.
        idle_s = machine.idle + getattr(machine, "iowait", 0.0)
        busy_s = sum(machine) - idle_s - getattr(machine, "guest", 0.0) - getattr(machine, "guest_nice", 0.0)
        now = (time.monotonic(), busy_s, _own_s(runtime_pid))
        before, self._before = self._before, now
        if before is None or now[0] <= before[0]:
            return None
        available_s = (now[0] - before[0]) * (psutil.cpu_count() or 1)
        # A runtime that ended takes its time out of the sum; others' use is then unknown, not huge.
        if now[2] < before[2]:
            return None
        others_s = (now[1] - before[1]) - (now[2] - before[2])
        return float(min(100.0, max(0.0, 100.0 * others_s / available_s)))


def _own_s(runtime_pid: int | None) -> float:
    total_s = 0.0
    for pid in (None, runtime_pid) if runtime_pid is not None else (None,):
        try:
            used = psutil.Process(pid).cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        total_s += used.user + used.system
    return total_s
