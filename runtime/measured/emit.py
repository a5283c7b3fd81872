"""Events leave here: numbered, queued, appended to the attempt's file by a thread of their own.

The engine's step pays for building an event and one append to a queue; numbering, serialising and writing
happen in the writer thread. The file is the only truth: the socket (serve.py) reads it back.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final, Literal

from contract.events import STREAMS_OF_TYPE, LogLine, Producer, Stream, StreamOpened, numbered_line
from contract.events.envelope import EventEnvelope
from contract.model import storable_text
from contract.version import CONTRACT_VERSION
from runtime.measured.errors import EventsNotWrittenError
from runtime.measured.event_file import EventFile

PENDING_SEQ: Final = 1
"""What an event carries until the writer numbers it: a dropped event must not use a number up."""

RUNTIME_STREAMS: Final = (Stream.CONTROL, Stream.SAMPLES, Stream.LOG)
MESSAGE_CHARACTERS: Final = 4000
"""Longest text for people in one event, far below the contract's limit for a line."""


def message_text(text: str) -> str:
    """Of a text that a person is to read, what an event may hold: bounded, and storable wherever it goes."""
    return storable_text(text[:MESSAGE_CHARACTERS])


LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class EmitLimits:
    """Bounds of the queue and deadlines of the writer, in events and seconds."""

    queue_events: int = 65_536
    write_interval_s: float = 0.05
    """Each write wakes a thread with cold caches: most of what events cost. A kill loses one interval."""
    fsync_interval_s: float = 0.5
    stall_s: float = 30.0
    """How long a producer waits for room, and the writer for a disk that refuses, before the attempt ends."""

    def room(self, stream: Stream) -> int:
        """Length of the queue up to which an event of this stream is taken: log goes first, control last."""
        share = {Stream.LOG: 2, Stream.SAMPLES: 3}.get(stream, 4)
        return self.queue_events * share // 4


@dataclass(frozen=True, slots=True)
class Written:
    """How much of the file is whole lines, and whether no more will come."""

    size_bytes: int
    complete: bool


def stream_of(event: EventEnvelope) -> Stream:
    """The stream in which a runtime writes this event; StopIteration for a type of the device agent."""
    if isinstance(event, StreamOpened):
        return event.stream
    return _stream_of_kind(type(event))


@cache
def _stream_of_kind(kind: type[EventEnvelope]) -> Stream:
    """Looked up once per kind: every event of a step comes through here."""
    streams = STREAMS_OF_TYPE[kind.model_fields["type"].default]
    return next(stream for stream in RUNTIME_STREAMS if stream in streams)


class EventEmitter:
    """Appends events to the file at `path`, which must not exist; safe to use from several threads.

    Within a stream seq counts from 1 without a gap and t_mono_ns never goes back. Control events are never
    dropped: a full queue makes the producer wait, at most `stall_s`, then EventsNotWrittenError. Samples and
    log are dropped before they are numbered. A warning in the log stream counts what was dropped, and waits.
    """

    def __init__(
        self, path: Path, attempt_id: str, producer: Producer, limits: EmitLimits | None = None
    ) -> None:
        self._limits = limits or EmitLimits()
        self._file = EventFile(path, self._limits.stall_s)
        self.path = path
        self._queue: deque[tuple[Stream, EventEnvelope]] = deque()
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._last_ns: dict[Stream, int] = dict.fromkeys(RUNTIME_STREAMS, 0)
        self._dropped: Counter[Stream] = Counter()
        self._seq: Counter[Stream] = Counter()
        self._queued = self._synced = 0
        self._waits = self._waited_ns = 0
        self._flushing = self._closing = False
        self._written = Written(0, complete=False)
        self._failure: EventsNotWrittenError | None = None
        for stream in RUNTIME_STREAMS:
            self.emit(_opening(stream, attempt_id, producer))
        self._thread = threading.Thread(target=self._live, name="events-writer", daemon=True)
        self._thread.start()

    def emit(self, event: EventEnvelope) -> None:
        """Queues the event; its seq is replaced. EventsNotWrittenError when they cannot be written."""
        stream = stream_of(event)
        with self._changed:
            if self._closing:
                return
            if len(self._queue) >= self._limits.room(stream):
                if stream is not Stream.CONTROL:
                    self._dropped[stream] += 1
                    return
                self._wait_for_room()
            # A producer may be overtaken between its clock and this lock; readers rely on the order.
            if event.t_mono_ns < self._last_ns[stream]:
                event = event.model_copy(update={"t_mono_ns": self._last_ns[stream]})
            self._last_ns[stream] = event.t_mono_ns
            self._queue.append((stream, event))
            self._queued += 1

    def log(self, level: LogLevel, message: str) -> None:
        """A line for people, cut to a bounded length."""
        self.emit(_log_line(level, message))

    def wait_written(self, size_bytes: int, timeout_s: float) -> Written:
        """Returns once more than `size_bytes` are written or nothing more will come, or at the time-out."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._written.size_bytes > size_bytes or self._written.complete, timeout_s
            )
            return self._written

    def flush(self, timeout_s: float = 10.0) -> None:
        """Returns when all that was emitted is on the disk; EventsNotWrittenError otherwise."""
        with self._changed:
            goal = self._queued
            self._flushing = True
            self._wake.set()
            done = self._changed.wait_for(
                lambda: self._synced >= goal or self._written.complete or self._failure is not None, timeout_s
            )
            if self._failure is not None or not done:
                raise self._failure or EventsNotWrittenError(self.path, timeout_s, "the disk is too slow")

    def close(self, timeout_s: float = 30.0) -> None:
        """Writes and syncs what is queued and ends the file; later events are ignored. May be repeated."""
        with self._changed:
            self._closing = True
        self._wake.set()
        self._thread.join(timeout_s)
        if self._failure is not None or self._thread.is_alive():
            raise self._failure or EventsNotWrittenError(self.path, timeout_s, "the disk is too slow")

    def _wait_for_room(self) -> None:
        """Returns when a control event fits; called with the lock held. Every wait is counted."""
        self._wake.set()
        began_ns = time.monotonic_ns()
        found = self._changed.wait_for(
            lambda: len(self._queue) < self._limits.queue_events or self._failure is not None,
            self._limits.stall_s,
        )
        self._waits += 1
        self._waited_ns += time.monotonic_ns() - began_ns
        if self._failure is not None or not found:
            raise self._failure or EventsNotWrittenError(self.path, self._limits.stall_s, "the queue is full")

    def _live(self) -> None:
        """The writer's life: it ends when the emitter is closed, or when the disk refuses for too long."""
        failure: EventsNotWrittenError | None = None
        try:
            while not self._write_once():
                # A poll, not a notification for each event: the engine's step is not to wake a thread.
                self._wake.wait(self._limits.write_interval_s)
                self._wake.clear()
        except EventsNotWrittenError as error:
            failure = error
        except Exception as error:
            # Nothing after this is written. To end without a word would pass the rest off as never emitted.
            failure = EventsNotWrittenError(self.path, 0.0, f"{type(error).__name__}: {error}")
        finally:
            self._file.close()
            with self._changed:
                self._failure = failure
                self._written = Written(self._written.size_bytes, complete=True)
                self._changed.notify_all()

    def _write_once(self) -> bool:
        """Moves the queue into the file; True when the emitter is closed and all is synced."""
        with self._changed:
            batch, goal, closing = list(self._queue), self._queued, self._closing
            self._queue.clear()
            dropped, self._dropped = self._dropped, Counter()
            waits, self._waits = self._waits, 0
            waited_ns, self._waited_ns = self._waited_ns, 0
            flushing, self._flushing = self._flushing, False
            self._changed.notify_all()
        if dropped:
            lost = ", ".join(f"{count} of {stream}" for stream, count in sorted(dropped.items()))
            batch.append(
                (Stream.LOG, _log_line("warning", f"events dropped before they were numbered: {lost}"))
            )
        if waits:
            told = (
                f"the event queue was full {waits} times; the engine was blocked for {waited_ns // 10**6} ms"
            )
            batch.append((Stream.LOG, _log_line("warning", told)))
        if batch:
            self._file.append(self._numbered(batch))
            with self._changed:
                self._written = Written(self._file.size_bytes, complete=False)
                self._changed.notify_all()
        urgent = flushing or closing
        if self._file.sync(0.0 if urgent else self._limits.fsync_interval_s):
            with self._changed:
                self._synced = goal
                self._changed.notify_all()
        return closing

    def _numbered(self, batch: Sequence[tuple[Stream, EventEnvelope]]) -> bytes:
        lines = []
        for stream, event in batch:
            self._seq[stream] += 1
            lines.append(numbered_line(event, self._seq[stream]))
        lines.append(b"")
        return b"\n".join(lines)


def _opening(stream: Stream, attempt_id: str, producer: Producer) -> StreamOpened:
    return StreamOpened(
        seq=PENDING_SEQ,
        t_mono_ns=time.monotonic_ns(),
        stream=stream,
        contract_version=CONTRACT_VERSION,
        attempt_id=attempt_id,
        producer=producer,
        t_wall=datetime.now(UTC),
    )


def _log_line(level: LogLevel, message: str) -> LogLine:
    return LogLine(seq=PENDING_SEQ, t_mono_ns=time.monotonic_ns(), level=level, message=message_text(message))
