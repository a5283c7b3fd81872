"""The trace of one attempt: its runtime's events by REST, in the order of their times, into a file."""

import heapq
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from client.api import DynofarmClient
from client.errors import InfrastructureError, UsageError
from client.stored_event import parsed_event
from client.trace.perfetto_file import PerfettoFile
from client.trace.timeline import Timeline
from contract.events import Event, Stream

RUNTIME_STREAMS: Final = (Stream.CONTROL, Stream.SAMPLES, Stream.LOG)
"""The stream of the device agent is left out: it has another clock, which these are never compared with."""

_RANK: Final = {"stream_opened": -2, "trial_started": -1, "trial_finished": 1, "runtime_finished": 2}
"""Of events of one moment: what begins comes first, what ends last."""


@dataclass(frozen=True, slots=True)
class WrittenTrace:
    """A finished file and what is in it."""

    path: Path
    size_bytes: int
    packets: int
    times_moved: int
    timeline: Timeline


def write_trace(client: DynofarmClient, attempt_id: str, path: Path) -> WrittenTrace:
    """Writes all stored events of the attempt's runtime to `path`, which is replaced when all is done.

    At most one page of each stream is in memory. InfrastructureError when no trial began, UsageError
    when the file cannot be written.
    """
    events = [_stream(client, attempt_id, stream) for stream in RUNTIME_STREAMS]
    return write_events(heapq.merge(*events, key=_when), attempt_id, path)


def write_events(events: Iterable[Event], attempt_id: str, path: Path) -> WrittenTrace:
    """As `write_trace`, from events in the order of their times."""
    try:
        handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            trace = PerfettoFile(file, f"attempt {attempt_id}")
            timeline = Timeline(trace)
            for event in events:
                timeline.take(event)
            timeline.finish()
            size_bytes = file.tell()
        if not timeline.counted.trials:
            raise InfrastructureError(
                "no-events",
                f"no trial of {attempt_id} is among the stored events: there is nothing to draw",
                "if it still runs, wait for its first trial; if it has ended, `dynofarm report RUN` says why",
            )
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)
    return WrittenTrace(path, size_bytes, trace.packets, trace.times_moved, timeline)


def _stream(client: DynofarmClient, attempt_id: str, stream: Stream) -> Iterator[Event]:
    return (parsed_event(stored) for stored in client.events(attempt_id, stream))


def _when(event: Event) -> tuple[int, int]:
    return event.t_mono_ns, _RANK.get(event.type, 0)


def _cannot_write(path: Path, error: OSError) -> UsageError:
    return UsageError(
        "bad-file", f"{path} cannot be written: {error.strerror}", "choose another file with -o"
    )
