"""Memory and processor time of a child process on this machine, as its device charges them to the app."""

import sys
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class HostUsage:
    """footprint_bytes is what the runtime itself calls its footprint; cpu_s grows."""

    footprint_bytes: int
    resident_bytes: int
    cpu_s: float
    threads: int


def read_usage(pid: int) -> HostUsage | None:
    """One reading, None when the process is gone.

    On Linux anonymous, shared-memory and swapped pages count, and clean pages of mapped files do not, as
    the runtime measures itself. Elsewhere the unique pages, as far as the system says them.
    """
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        cpu_s = times.user + times.system
        if sys.platform != "linux":
            full = process.memory_full_info()
            return HostUsage(getattr(full, "uss", full.rss), full.rss, cpu_s, process.num_threads())
        sizes = _sizes(Path(f"/proc/{pid}/status").read_text())
    except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError, ProcessLookupError):
        return None
    if "VmRSS" not in sizes:
        # A zombie has no memory any more.
        return None
    charged_bytes = sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0) + sizes.get("VmSwap", 0)
    return HostUsage(charged_bytes, sizes["VmRSS"], cpu_s, sizes.get("Threads", 1))


def _sizes(text: str) -> dict[str, int]:
    sizes = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        if number.isdigit():
            sizes[name] = int(number) * (1024 if unit == "kB" else 1)
    return sizes
