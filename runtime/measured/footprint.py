"""The process's footprint, sampled while trials run."""

import threading
import time

from contract.events import MemorySampled
from runtime.host.memory import read_footprint
from runtime.measured.emit import PENDING_SEQ, EventEmitter

SAMPLE_INTERVAL_S = 0.04


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
