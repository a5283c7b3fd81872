"""Whether the system killed something for memory: Linux counts it, for the whole machine and per cgroup."""

import re
from pathlib import Path

_COUNTER = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
MACHINE_COUNTER = Path("/proc/vmstat")
_CGROUP_ROOT = Path("/sys/fs/cgroup")


def counters_here() -> tuple[Path, ...]:
    """The files that count for this process: its cgroup's, and the machine's."""
    try:
        own = Path("/proc/self/cgroup").read_text()
    except OSError:
        return (MACHINE_COUNTER,)
    groups = [line.partition("::")[2] for line in own.splitlines() if line.startswith("0::")]
    return (*(_CGROUP_ROOT / group.lstrip("/") / "memory.events" for group in groups), MACHINE_COUNTER)


def memory_kill_count(counters: tuple[Path, ...]) -> int | None:
    """Sum of all readable counters, only good for comparing with itself; None when none can be read."""
    counts = []
    for path in counters:
        try:
            counts += [int(count) for count in _COUNTER.findall(path.read_text())]
        except OSError:
            continue
    return sum(counts) if counts else None
