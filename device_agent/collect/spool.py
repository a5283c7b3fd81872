"""The events of one attempt on disk, numbered 1..n in each stream, until the result is acknowledged.

SQLite in WAL mode with synchronous=FULL: when `take` or `record` returns, a power
cut loses nothing of it. A runtime numbers its own streams; the spool gives the numbers for the upload:

* `source_seq` is the runtime's number, the mark from which it is asked again (Subscribe.after);
* `seq` is the uploaded number. They are equal until a full disk makes the spool drop log or samples
  (quota.py). Later events of that stream close ranks: they are written again with the next free number.
  So every uploaded stream is free of gaps, and what is missing is counted in `spool_dropped`.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from contract.events import Event, EventEnvelope, SpoolDropped, event_line, numbered_line, parse_event
from contract.events.envelope import Stream
from device_agent.collect.quota import keeps
from device_agent.floor.errors import SpoolBehindError, SpoolFullError

_BUSY_TIMEOUT_S = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    stream TEXT NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL, line BLOB NOT NULL,
    PRIMARY KEY (stream, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS streams (
    stream TEXT PRIMARY KEY, last_seq INTEGER NOT NULL DEFAULT 0, source_seq INTEGER NOT NULL DEFAULT 0,
    next_upload_seq INTEGER NOT NULL DEFAULT 1, dropped INTEGER NOT NULL DEFAULT 0,
    reported_dropped INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS progress (
    only INTEGER PRIMARY KEY CHECK (only = 1), file_offset INTEGER NOT NULL DEFAULT 0,
    used_bytes INTEGER NOT NULL DEFAULT 0
);
INSERT OR IGNORE INTO progress (only) VALUES (1);
"""


@dataclass(frozen=True, slots=True)
class Arrived:
    """One event of the runtime, as it came: `line` without newline, `source_seq` the runtime's number."""

    source_seq: int
    line: bytes
    event: Event


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What one reading brought, kept or lost as a whole.

    file_offset: up to where events.jsonl is in the spool, None when the lines came by the socket.
    dropped: events that cannot be kept, because they follow a hole. notes: events for the agent's stream.
    """

    events: Mapping[Stream, Sequence[Arrived]] = field(default_factory=dict)
    file_offset: int | None = None
    dropped: Mapping[Stream, int] = field(default_factory=dict)
    notes: Sequence[Callable[[int], EventEnvelope]] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive lines of one stream, the first numbered first_seq."""

    stream: Stream
    first_seq: int
    lines: tuple[bytes, ...]


class Spool:
    """One attempt's spool; may be used from several threads, each call is one transaction.

    SpoolFullError: the disk is full and nothing of the call was kept.
    """

    def __init__(self, path: Path, quota_bytes: int) -> None:
        """Opens or creates; what an earlier process had committed is there."""
        self._quota_bytes = quota_bytes
        self._lock = threading.RLock()
        self._database = sqlite3.connect(
            path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        with self._transaction() as database:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                database.execute(statement)
            for stream in Stream:
                database.execute("INSERT OR IGNORE INTO streams (stream) VALUES (?)", (stream,))

    def close(self) -> None:
        """Further calls raise sqlite3.ProgrammingError."""
        with self._lock:
            self._database.close()

    def limit_pages(self, pages: int) -> None:
        """Let the database file have at most so many pages: a full disk, on purpose."""
        with self._lock:
            self._database.execute(f"PRAGMA max_page_count={int(pages)}")

    def take(self, arrivals: Arrivals) -> None:
        """Keep what comes next in the runtime's order; what is known already is skipped.

        ValueError for a gap in source_seq: the caller must ask the runtime again instead.
        """
        with self._transaction() as database:
            (used_bytes,) = database.execute("SELECT used_bytes FROM progress").fetchone()
            for stream, events in arrivals.events.items():
                used_bytes = self._append_stream(stream, events, used_bytes)
            database.execute(
                "UPDATE progress SET used_bytes = ?, file_offset = coalesce(?, file_offset)",
                (used_bytes, arrivals.file_offset),
            )
            for stream, count in arrivals.dropped.items():
                database.execute("UPDATE streams SET dropped = dropped + ? WHERE stream = ?", (count, stream))
            for make in arrivals.notes:
                self._record(make)

    def _append_stream(self, stream: Stream, events: Sequence[Arrived], used_bytes: int) -> int:
        last_seq, source_seq, dropped = self._database.execute(
            "SELECT last_seq, source_seq, dropped FROM streams WHERE stream = ?", (stream,)
        ).fetchone()
        rows = []
        for each in events:
            if each.source_seq <= source_seq:
                continue
            if each.source_seq != source_seq + 1:
                raise ValueError(f"{stream}: {each.source_seq} does not follow {source_seq}")
            source_seq = each.source_seq
            if not keeps(stream, source_seq, used_bytes, self._quota_bytes):
                dropped += 1
                continue
            last_seq += 1
            line = each.line if last_seq == source_seq else numbered_line(each.event, last_seq)
            rows.append((stream, last_seq, each.event.type, line))
            used_bytes += len(line)
        self._database.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        self._database.execute(
            "UPDATE streams SET last_seq = ?, source_seq = ?, dropped = ? WHERE stream = ?",
            (last_seq, source_seq, dropped, stream),
        )
        return used_bytes

    def record(self, make: Callable[[int], EventEnvelope]) -> None:
        """Append to the agent's own stream the event that `make(seq)` gives; seq is allotted here."""
        with self._transaction():
            self._record(make)

    def _record(self, make: Callable[[int], EventEnvelope]) -> None:
        (last_seq,) = self._database.execute(
            "SELECT last_seq FROM streams WHERE stream = ?", (Stream.DEVICE_AGENT,)
        ).fetchone()
        line = event_line(make(last_seq + 1))
        kind = parse_event(line).type
        self._database.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?)", (Stream.DEVICE_AGENT, last_seq + 1, kind, line)
        )
        self._database.execute(
            "UPDATE streams SET last_seq = last_seq + 1 WHERE stream = ?", (Stream.DEVICE_AGENT,)
        )
        self._database.execute("UPDATE progress SET used_bytes = used_bytes + ?", (len(line),))

    def report_drops(self, t_mono_ns: int) -> None:
        """Write `spool_dropped` for what was dropped since the last report; each loss is told once."""
        with self._transaction() as database:
            rows = database.execute(
                "SELECT stream, dropped - reported_dropped FROM streams WHERE dropped > reported_dropped"
            ).fetchall()
            for stream, count in rows:
                self._record(partial(_dropped_event, Stream(stream), count, t_mono_ns))
            database.execute("UPDATE streams SET reported_dropped = dropped")

    def last_seqs(self) -> dict[Stream, int]:
        """Of every stream that has events: the last uploaded number."""
        return self._numbers("SELECT stream, last_seq FROM streams WHERE last_seq > 0")

    def source_seqs(self) -> dict[Stream, int]:
        """Of every stream of the runtime: up to which of its numbers it is here (dropped ones included)."""
        return self._numbers("SELECT stream, source_seq FROM streams WHERE stream != 'device_agent'")

    def dropped(self) -> dict[Stream, int]:
        """Events that were not kept."""
        return self._numbers("SELECT stream, dropped FROM streams WHERE dropped > 0")

    def _numbers(self, query: str) -> dict[Stream, int]:
        with self._lock:
            return {Stream(stream): number for stream, number in self._database.execute(query)}

    def file_offset(self) -> int:
        """Up to where events.jsonl is in the spool, in bytes."""
        with self._lock:
            (offset,) = self._database.execute("SELECT file_offset FROM progress").fetchone()
            return int(offset)

    def backlog(self) -> int:
        """Events that the controller has not acknowledged."""
        with self._lock:
            (count,) = self._database.execute(
                "SELECT sum(last_seq - next_upload_seq + 1) FROM streams"
            ).fetchone()
            return int(count)

    def events(self, stream: Stream, *types: str) -> list[Event]:
        """The stored events of these types, in order."""
        marks = ", ".join("?" * len(types))
        query = f"SELECT line FROM events WHERE stream = ? AND type IN ({marks}) ORDER BY seq"
        with self._lock:
            return [parse_event(line) for (line,) in self._database.execute(query, (stream, *types))]

    def next_batch(self, stream: Stream, max_bytes: int, max_lines: int) -> Batch | None:
        """What to send next: lines of at most max_bytes with their newlines, but always at least one."""
        with self._lock:
            (first_seq,) = self._database.execute(
                "SELECT next_upload_seq FROM streams WHERE stream = ?", (stream,)
            ).fetchone()
            rows = self._database.execute(
                "SELECT line FROM events WHERE stream = ? AND seq >= ? ORDER BY seq LIMIT ?",
                (stream, first_seq, max_lines),
            )
            lines: list[bytes] = []
            size_bytes = 0
            for (line,) in rows:
                size_bytes += len(line) + 1
                if lines and size_bytes > max_bytes:
                    break
                lines.append(line)
        return Batch(stream, first_seq, tuple(lines)) if lines else None

    def acknowledge(self, stream: Stream, next_seq: int) -> None:
        """Everything before next_seq is stored there. A lower number than before rewinds: a restored server.

        SpoolBehindError: the server has what was never here.
        """
        with self._transaction() as database:
            changed = database.execute(
                "UPDATE streams SET next_upload_seq = ? WHERE stream = ? AND ? BETWEEN 1 AND last_seq + 1",
                (next_seq, stream, next_seq),
            ).rowcount
            if not changed:
                raise SpoolBehindError(
                    f"the server asks for {next_seq} of {stream}, which is beyond this spool"
                )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield self._database
                self._database.execute("COMMIT")
            except BaseException as error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise SpoolFullError(str(error)) from error
                raise


def _dropped_event(stream: Stream, count: int, t_mono_ns: int, seq: int) -> SpoolDropped:
    return SpoolDropped(seq=seq, t_mono_ns=t_mono_ns, stream=stream, count=count)
