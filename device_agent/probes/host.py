"""The agent's own machine: what is free, what the agent holds, and how busy others keep the processor."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

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


def disk_refusal(home: Path) -> str:
    """Why no file can be made on the disk of `home`, "" when it does: free bytes say nothing of inodes."""
    try:
        with TemporaryFile(dir=home) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


class OthersCpu:
    """Processor use of everything but the agent and its runtime, in percent of the whole machine.

    Each `percent()` covers the time since the one before; None at the first, and when a clock stood still.
    """

    def __init__(self) -> None:
        """Nothing is known before the second reading."""
        self._before: _Reading | None = None

    def percent(self, runtime_pid: int | None) -> float | None:
        """0 to 100. runtime_pid: its processor time is ours, not others'.

        None also when the runtime ended in between: what it used until then is in no sum any more.
        """
        now = _read(runtime_pid)
        before, self._before = self._before, now
        if before is None or now.at_s <= before.at_s or now.runtime_s < before.runtime_s:
            return None
        available_s = (now.at_s - before.at_s) * (psutil.cpu_count() or 1)
        own_s = now.agent_s - before.agent_s + now.runtime_s - before.runtime_s
        others_s = now.busy_s - before.busy_s - own_s
        return float(min(100.0, max(0.0, 100.0 * others_s / available_s)))


@dataclass(frozen=True, slots=True)
class _Reading:
    """Processor seconds since each began; runtime_s is 0 without one."""

    at_s: float
    busy_s: float
    agent_s: float
    runtime_s: float


def _read(runtime_pid: int | None) -> _Reading:
    machine = psutil.cpu_times()
    # Guest time is part of user time already, and what waits for the disk is idle.
    idle_s = machine.idle + getattr(machine, "iowait", 0.0)
    busy_s = sum(machine) - idle_s - getattr(machine, "guest", 0.0) - getattr(machine, "guest_nice", 0.0)
    return _Reading(
        at_s=time.monotonic(),
        busy_s=busy_s,
        agent_s=_used_s(None),
        runtime_s=0.0 if runtime_pid is None else _used_s(runtime_pid),
    )


def _used_s(pid: int | None) -> float:
    """Of one process, None for this one; 0 when it is gone."""
    try:
        used = psutil.Process(pid).cpu_times()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0
    return float(used.user + used.system)
