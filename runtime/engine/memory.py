"""The process's footprint as the system charges it, sampled during trials; memory given back between them."""

import gc
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contract.events import MemorySampled
from contract.ios_app import ENV_MEMORY_LIMIT
from runtime.engine.emit import PENDING_SEQ, EventEmitter
from runtime.engine.heap import trim

SAMPLE_INTERVAL_S = 0.04
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


class FootprintSampler:
    """Emits memory_sampled every `interval_s` from a thread of its own, until `close`."""

    def __init__(
        self, emitter: EventEmitter, limit_bytes: int | None, interval_s: float = SAMPLE_INTERVAL_S
    ) -> None:
        self._emitter = emitter
        self._limit_bytes = limit_bytes
        self._interval_s = interval_s
        self._trial: int | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_closed, name="footprint", daemon=True)
        self._thread.start()

    def attribute_to(self, trial: int | None, limit_bytes: int | None) -> None:
        """Samples from now on belong to `trial`, which may use `limit_bytes`; one is taken at once."""
        self._trial, self._limit_bytes = trial, limit_bytes
        self._emit()

    def close(self) -> None:
        """Takes no more samples."""
        self._closed.set()
        self._thread.join(5.0)

    def _sample_until_closed(self) -> None:
        while not self._closed.wait(self._interval_s):
            self._emit()

    def _emit(self) -> None:
        # Read before the footprint: a sample taken on the border belongs to the trial that was running.
        trial, limit_bytes = self._trial, self._limit_bytes
        read = read_footprint()
        self._emitter.emit(
            MemorySampled(
                seq=PENDING_SEQ,
                t_mono_ns=time.monotonic_ns(),
                trial=trial,
                footprint_bytes=read.footprint_bytes,
                resident_bytes=read.resident_bytes,
                limit_bytes=limit_bytes,
                available_bytes=None if limit_bytes is None else max(0, limit_bytes - read.footprint_bytes),
                method=read.method,
            )
        )
