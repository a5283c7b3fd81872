"""Was any event lost or stored twice? What the runtimes wrote on their disk against what the store holds."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client.api import DynofarmClient
from client.errors import InfrastructureError
from client.farm_home import FarmHome
from contract.events import STREAMS_OF_TYPE, Stream
from contract.rest import RunView

RUNTIME_STREAMS = (Stream.CONTROL, Stream.SAMPLES, Stream.LOG)

StreamAndEvent = tuple[Stream, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class EventAudit:
    """lost: written, but not stored as it was written. duplicated: stored beyond what was written.

    An event that was changed on its way is both.
    """

    written: int
    stored: int
    lost: int
    duplicated: int

    def __add__(self, other: "EventAudit") -> "EventAudit":
        return EventAudit(
            self.written + other.written,
            self.stored + other.stored,
            self.lost + other.lost,
            self.duplicated + other.duplicated,
        )


NOTHING_AUDITED = EventAudit(0, 0, 0, 0)


def audit_run(client: DynofarmClient, home: FarmHome, run: RunView) -> EventAudit:
    """Over all attempts of a run whose devices' agent keeps its files in `home`."""
    audit = NOTHING_AUDITED
    for job in run.jobs:
        for attempt in job.attempts:
            audit += _audit_attempt(client, home, attempt.attempt_id)
    return audit


def _audit_attempt(client: DynofarmClient, home: FarmHome, attempt_id: str) -> EventAudit:
    file = home.events_file(attempt_id)
    written = [(stream_of(event), event) for event in written_events(file)]
    stored = [(stream, event) for stream in RUNTIME_STREAMS for event in client.events(attempt_id, stream)]
    if stored and not file.exists():
        raise InfrastructureError("events-unreadable", f"{file} is gone, so nothing can be compared with it")
    agent = [int(event["seq"]) for event in client.events(attempt_id, Stream.DEVICE_AGENT)]
    return compare_events(written, stored) + audit_numbers(agent)


def compare_events(written: Iterable[StreamAndEvent], stored: Iterable[StreamAndEvent]) -> EventAudit:
    """Event by event: stream, seq and every field."""
    on_disk = Counter(_canonical(stream, event) for stream, event in written)
    in_store = Counter(_canonical(stream, event) for stream, event in stored)
    return EventAudit(
        written=on_disk.total(),
        stored=in_store.total(),
        lost=(on_disk - in_store).total(),
        duplicated=(in_store - on_disk).total(),
    )


def audit_numbers(seqs: Iterable[int]) -> EventAudit:
    """A stream whose writer keeps no file of its own: its numbers must be 1..n, each once."""
    counts = Counter(seqs)
    last = max(counts, default=0)
    missing = last - sum(1 for seq in counts if 1 <= seq <= last)
    return EventAudit(
        written=last,
        stored=counts.total(),
        lost=missing,
        duplicated=counts.total() - len(counts),
    )


def written_events(path: Path) -> list[dict[str, Any]]:
    """The lines of a runtime's events file; a torn last line is not an event (contract/runtime_link.py).

    Empty when there is no file: an attempt that was refused never had a runtime.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InfrastructureError("events-unreadable", f"{path} cannot be read: {error.strerror}") from error
    lines = content.split(b"\n")[:-1]
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise InfrastructureError("events-unreadable", f"{path} holds a line that is not JSON") from error


def stream_of(event: Mapping[str, Any]) -> Stream:
    """Which of the runtime's streams a line of its file belongs to."""
    if event["type"] == "stream_opened":
        return Stream(event["stream"])
    (stream,) = STREAMS_OF_TYPE[event["type"]] - {Stream.DEVICE_AGENT}
    return stream


def _canonical(stream: Stream, event: Mapping[str, Any]) -> str:
    return f"{stream} {json.dumps(event, sort_keys=True, separators=(',', ':'))}"
