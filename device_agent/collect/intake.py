"""Lines of a runtime become events of the spool: parsed once, in order, holes found.

The socket may skip or repeat; then it is left and the file is read, which is the authority. A line of
the file that does not parse, or a number that does not follow, is a hole: the stream ends before it, what
comes after is counted as dropped, and the attempt will fail with `events_invalid`.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from contract.events import (
    MAX_EVENT_LINE_BYTES,
    STREAMS_OF_TYPE,
    Event,
    EventLineError,
    EventRefused,
    RuntimeFinished,
    RuntimeStage,
    StreamOpened,
    TrialFinished,
    TrialStarted,
    parse_event,
)
from contract.events.envelope import EventEnvelope, Stream
from contract.failures import FailureReason
from contract.ids import AttemptId
from contract.version import SUPPORTED_CONTRACT_VERSIONS
from device_agent.collect.framing import TooLong
from device_agent.collect.spool import Arrivals, Arrived, Spool
from device_agent.floor.clock import monotonic_ns

# Each refused line is counted, but only so many are told one by one: a broken runtime may write millions.
_TOLD_REFUSALS = 20


class LinkBrokenError(Exception):
    """The socket brought something that cannot come next; the file says what is true."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the runtime is, from its events. quiet_since_ns: when the last new one came.

    invalid: what is wrong with its events, "" for nothing. trial: the one that runs, None between two.
    """

    quiet_since_ns: int
    ready: bool = False
    trials_done: int = 0
    finished: RuntimeFinished | None = None
    invalid: str = ""
    trial: int | None = None

    def after(self, event: Event) -> "Progress":
        """With one more event taken into account."""
        match event:
            case RuntimeStage(stage="ready"):
                return replace(self, ready=True)
            case TrialStarted():
                return replace(self, ready=True, trial=event.trial)
            case TrialFinished():
                return replace(self, trials_done=self.trials_done + 1, trial=None)
            case RuntimeFinished():
                return replace(self, finished=event)
        return self


@dataclass(slots=True)
class _Reading:
    """What has been gathered of one call, not yet in the spool."""

    last: dict[Stream, int]
    progress: Progress
    events: defaultdict[Stream, list[Arrived]] = field(default_factory=lambda: defaultdict(list))
    dropped: defaultdict[Stream, int] = field(default_factory=lambda: defaultdict(int))
    notes: list[Callable[[int], EventEnvelope]] = field(default_factory=list)
    refused: int = 0


class Intake:
    """The one way into the spool for a runtime's lines; calls from several threads take turns."""

    def __init__(self, spool: Spool, attempt_id: AttemptId) -> None:
        self._spool = spool
        self._attempt_id = attempt_id
        self._lock = threading.Lock()
        self._last = spool.source_seqs()
        self._refused = 0
        self._progress = _restored(spool)

    @property
    def progress(self) -> Progress:
        return self._progress

    def from_socket(self, lines: Sequence[bytes]) -> None:
        """Keep the events; LinkBrokenError for what cannot come next, SpoolFullError when the disk is full.

        What came before the broken line is kept.
        """
        with self._lock:
            reading = _Reading(dict(self._last), self._progress)
            broken = ""
            for line in lines:
                try:
                    stream, arrived = self._parse(line)
                except EventLineError as error:
                    broken = f"a line does not parse: {error}"
                    break
                if arrived.source_seq > reading.last[stream] + 1:
                    broken = f"{stream}: {arrived.source_seq} came after {reading.last[stream]}"
                    break
                _keep(reading, stream, arrived)
            self._commit(reading, None)
        if broken:
            raise LinkBrokenError(broken)

    def from_file(self, lines: Sequence[bytes | TooLong], file_offset: int) -> None:
        """Keep the events of the file up to file_offset, note holes. SpoolFullError: nothing was kept."""
        with self._lock:
            reading = _Reading(dict(self._last), self._progress)
            for line in lines:
                try:
                    stream, arrived = self._parse(line)
                except EventLineError as error:
                    self._refuse(reading, str(error))
                    continue
                expected = reading.last[stream] + 1
                if arrived.source_seq <= expected:
                    _keep(reading, stream, arrived)
                    continue
                if not reading.progress.invalid:
                    self._refuse(reading, f"{stream}: {arrived.source_seq} came where {expected} was due")
                reading.dropped[stream] += 1
            self._commit(reading, file_offset)

    def _parse(self, line: bytes | TooLong) -> tuple[Stream, Arrived]:
        if isinstance(line, TooLong):
            raise EventLineError(
                "", f"the line has {line.size_bytes} bytes, at most {MAX_EVENT_LINE_BYTES} are allowed"
            )
        event = parse_event(line)
        if isinstance(event, StreamOpened):
            if event.contract_version not in SUPPORTED_CONTRACT_VERSIONS:
                raise EventLineError("contract_version", f"{event.contract_version!r} is not known here")
            if event.attempt_id != self._attempt_id:
                raise EventLineError("attempt_id", "the stream belongs to another attempt")
            stream = event.stream
        else:
            # An event that either side may write is, from the runtime, one of its samples.
            stream = min(STREAMS_OF_TYPE[event.type] - {Stream.DEVICE_AGENT}, default=Stream.DEVICE_AGENT)
        if stream is Stream.DEVICE_AGENT:
            raise EventLineError("type", "only the device agent writes this event")
        if (event.seq == 1) != isinstance(event, StreamOpened):
            raise EventLineError("seq", "a stream begins with stream_opened, and has it once")
        return stream, Arrived(event.seq, line, event)

    def _refuse(self, reading: _Reading, problem: str) -> None:
        reading.refused += 1
        count = self._refused + reading.refused
        if not reading.progress.invalid:
            reading.progress = replace(reading.progress, invalid=problem)
        if count <= _TOLD_REFUSALS:
            reading.notes.append(
                lambda seq: EventRefused(
                    seq=seq,
                    t_mono_ns=monotonic_ns(),
                    reason=FailureReason.EVENTS_INVALID,
                    detail=problem[:1000],
                )
            )

    def _commit(self, reading: _Reading, file_offset: int | None) -> None:
        if reading.events or reading.notes or reading.dropped or file_offset is not None:
            self._spool.take(Arrivals(reading.events, file_offset, reading.dropped, tuple(reading.notes)))
        self._last = reading.last
        self._refused += reading.refused
        self._progress = reading.progress


def _keep(reading: _Reading, stream: Stream, arrived: Arrived) -> None:
    if arrived.source_seq != reading.last[stream] + 1:
        return
    reading.events[stream].append(arrived)
    reading.last[stream] = arrived.source_seq
    reading.progress = replace(reading.progress.after(arrived.event), quiet_since_ns=monotonic_ns())


def _restored(spool: Spool) -> Progress:
    progress = Progress(quiet_since_ns=monotonic_ns())
    for event in spool.events(
        Stream.CONTROL, "runtime_stage", "trial_started", "trial_finished", "runtime_finished"
    ):
        progress = progress.after(event)
    for refused in spool.events(Stream.DEVICE_AGENT, "event_refused"):
        if isinstance(refused, EventRefused) and not progress.invalid:
            progress = replace(progress, invalid=refused.detail)
    return progress
