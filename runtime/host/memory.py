"""The process's footprint as the system charges it, its limit, and memory given back to the system."""

import gc
import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contract.ios_app import ENV_MEMORY_LIMIT
from runtime.host.heap import trim

_STATUS = Path("/proc/self/status")
_CGROUP = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_UNLIMITED_BYTES = 1 << 60
"""cgroup v1 writes a huge number for no limit."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """One reading. resident_bytes: None where the system does not say; method: what was read."""

    footprint_bytes: int
    resident_bytes: int | None
    method: str


def read_footprint() -> Footprint:
    """What this process is charged for now.

    linux_anonymous: anonymous, shared-memory and swapped pages; clean pages of mapped files are not charged.
    Elsewhere max_resident, the largest resident size so far: a peak that never falls.
    """
    if not _STATUS.exists():
        scale = 1 if sys.platform == "darwin" else 1024
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
        return Footprint(peak_bytes, None, "max_resident")
    sizes = dict(_status_sizes(_STATUS.read_text()))
    charged_bytes = sum(sizes.get(name, 0) for name in ("RssAnon", "RssShmem", "VmSwap"))
    return Footprint(charged_bytes, sizes.get("VmRSS"), "linux_anonymous")


def _status_sizes(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            yield name, int(value.split()[0]) * 1024


def memory_limit_bytes(cgroup: Path = _CGROUP, root: Path = _CGROUP_ROOT) -> int | None:
    """The smallest limit of the control groups that this process is in, or of the device that it emulates.

    None without one.
    """
    told = os.environ.get(ENV_MEMORY_LIMIT, "")
    limits = [limit for limit in (int(told) if told.isdigit() else None, _group_limit(cgroup, root)) if limit]
    return min(limits, default=None)


def _group_limit(cgroup: Path, root: Path) -> int | None:
    try:
        entries = [line.split(":", 2) for line in cgroup.read_text().splitlines()]
    except OSError:
        return None
    limits = []
    for _, controllers, name in entries:
        if controllers in ("", "memory"):
            base, file = (
                (root, "memory.max") if not controllers else (root / "memory", "memory.limit_in_bytes")
            )
            folder = base / name.lstrip("/")
            limits += [
                _limit_in(level / file) for level in (folder, *folder.parents) if level.is_relative_to(base)
            ]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit_in(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) < _UNLIMITED_BYTES else None


def physical_memory_bytes() -> int | None:
    """Memory of the machine; None where the system does not say."""

    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def give_back_memory() -> None:
    """Returns freed memory to the system, so that the next trial's peak is its own.

    What all trials share stays in every peak: interpreter, torch, weights, tokenizer, and the small pieces
    that the allocator keeps.
    """
    gc.collect()
    trim()
