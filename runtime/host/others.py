"""How much of the machine others use: what it did less what this process and its children did."""

import threading
import time
from bisect import bisect_left
from dataclasses import dataclass

import psutil

_SAMPLE_INTERVAL_S = 0.2
_KEPT = 200_000
"""Samples: over ten hours; the oldest are let go."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds since some start: of the whole machine, of all that ran, of this process's tree."""

    at_ns: int
    total_s: float
    busy_s: float
    own_s: float


def read_usage(processes: dict[int, float]) -> Usage:
    """`processes` keeps the seconds of every child seen, so that one that has ended is still counted."""
    machine = psutil.cpu_times()
    idle_s = machine.idle + getattr(machine, "iowait", 0.0)
    # guest time is part of user, guest_nice of nice; what the host took (steal) is somebody else's work.
    counted = ("user", "nice", "system", "irq", "softirq", "steal")
    busy_s = sum(getattr(machine, name, 0.0) for name in counted)
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        processes[process.pid] = max(processes.get(process.pid, 0.0), times.user + times.system)
    return Usage(time.monotonic_ns(), busy_s + idle_s, busy_s, sum(processes.values()))


class OthersMeter:
    """Samples from construction to `close`, in a thread of its own."""

    def __init__(self, interval_s: float = _SAMPLE_INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._processes: dict[int, float] = {}
        self._samples = [read_usage(self._processes)]
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="others-meter", daemon=True)
        self._thread.start()

    def percent(self, start_ns: int, end_ns: int) -> float:
        """Share of the machine that others used between two times of the monotonic clock, 0 to 100.

        The clock of processor time ticks every 10 ms: spans under a second are rough.
        """
        with self._lock:
            self._take()
            start, end = self._at(start_ns), self._at(end_ns)
        total_s = end.total_s - start.total_s
        others_s = (end.busy_s - start.busy_s) - (end.own_s - start.own_s)
        return min(100.0, max(0.0, others_s / total_s * 100.0)) if total_s > 0 else 0.0

    def wait_for_quiet(self, percent_max: float, timeout_s: float, look_s: float = 1.0) -> bool:
        """True once others used at most `percent_max` during `look_s`; False at the time-out."""
        deadline_s = time.monotonic() + timeout_s
        while not self._closed.is_set():
            began_ns = time.monotonic_ns()
            self._closed.wait(look_s)
            if self.percent(began_ns, time.monotonic_ns()) <= percent_max:
                return True
            if time.monotonic() >= deadline_s:
                return False
        return False

    def close(self) -> None:
        self._closed.set()
        self._thread.join(5.0)

    def _sample(self) -> None:
        while not self._closed.wait(self._interval_s):
            with self._lock:
                self._take()

    def _take(self) -> None:
        self._samples.append(read_usage(self._processes))
        if len(self._samples) > _KEPT:
            del self._samples[: _KEPT // 2]

    def _at(self, at_ns: int) -> Usage:
        """Between the two samples around the time; the first or last outside of them."""
        after = bisect_left(self._samples, at_ns, key=lambda sample: sample.at_ns)
        if after in (0, len(self._samples)):
            return self._samples[min(after, len(self._samples) - 1)]
        one, other = self._samples[after - 1], self._samples[after]
        share = (at_ns - one.at_ns) / (other.at_ns - one.at_ns)
        return Usage(
            at_ns,
            *(
                getattr(one, name) + share * (getattr(other, name) - getattr(one, name))
                for name in ("total_s", "busy_s", "own_s")
            ),
        )
