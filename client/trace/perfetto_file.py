"""Tracks, slices, instants and counters written as Perfetto's TrackEvents, packet by packet (docs/adr/0016).

Only what is open is kept in memory, so the length of a trace does not matter.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import IO, Any, Final

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    DebugAnnotation,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

Details = Mapping[str, str | int | Sequence[str | int]]
"""Shown beside a slice or an instant when somebody selects it."""

NO_DETAILS: Final[Details] = {}
_SEQUENCE_ID: Final = 1
_PROCESS_ID: Final = 1


class Unit(Enum):
    """What a counter counts."""

    COUNT = CounterDescriptor.Unit.UNIT_COUNT
    BYTES = CounterDescriptor.Unit.UNIT_SIZE_BYTES


@dataclass(slots=True)
class Track:
    """A line of the trace. Slices on it nest; times on it never go back."""

    uuid: int
    name: str
    open_slices: int = 0
    last_ns: int = 0
    children: int = 0


@dataclass(slots=True)
class PerfettoFile:
    """Writes to `file`; `name` is the trace's own, and makes its tracks' ids its own too."""

    file: IO[bytes]
    name: str
    packets: int = 0
    times_moved: int = 0
    """How often an event was before the one ahead of it on its track, and was moved there."""
    _builder: Any = field(init=False)
    _tracks: list[Track] = field(init=False, default_factory=list)
    root: Track = field(init=False)

    def __post_init__(self) -> None:
        """Declares the trace's process, below which all tracks are."""
        self._builder = StreamingTraceProtoBuilder(self.file)
        descriptor = self._descriptor(self.name, None)
        descriptor.process.pid = _PROCESS_ID
        descriptor.process.process_name = self.name
        self.root = self._declare(descriptor, self.name)

    def track(self, name: str, parent: Track) -> Track:
        """A track for slices and instants, below `parent` and behind its other children."""
        return self._declare(self._descriptor(name, parent), name)

    def counter(self, name: str, parent: Track, unit: Unit) -> Track:
        """A track for values of `unit`."""
        descriptor = self._descriptor(name, parent)
        descriptor.counter.unit = unit.value
        return self._declare(descriptor, name)

    def begin(self, track: Track, t_ns: int, name: str, details: Details = NO_DETAILS) -> None:
        """Opens a slice within those that are open."""
        event = self._event(track, t_ns, TrackEvent.Type.TYPE_SLICE_BEGIN)
        event.track_event.name = name
        _annotate(event, details)
        track.open_slices += 1
        self._write(event)

    def end(self, track: Track, t_ns: int, details: Details = NO_DETAILS) -> None:
        """Closes the slice that was opened last; ValueError when none is open."""
        if not track.open_slices:
            raise ValueError(f"no slice is open on {track.name}")
        event = self._event(track, t_ns, TrackEvent.Type.TYPE_SLICE_END)
        _annotate(event, details)
        track.open_slices -= 1
        self._write(event)

    def instant(self, track: Track, t_ns: int, name: str, details: Details = NO_DETAILS) -> None:
        """Something that took no time."""
        event = self._event(track, t_ns, TrackEvent.Type.TYPE_INSTANT)
        event.track_event.name = name
        _annotate(event, details)
        self._write(event)

    def value(self, track: Track, t_ns: int, value: float) -> None:
        """From now on the counter stands at `value`."""
        event = self._event(track, t_ns, TrackEvent.Type.TYPE_COUNTER)
        if isinstance(value, int):
            event.track_event.counter_value = value
        else:
            event.track_event.double_counter_value = value
        self._write(event)

    def close_slices(self, t_ns: int) -> None:
        """Ends whatever is open anywhere, and says that its end was not seen."""
        for track in self._tracks:
            while track.open_slices:
                self.end(track, t_ns, {"unfinished": "its end is not among the events"})

    def _descriptor(self, name: str, parent: Track | None) -> Any:
        """A descriptor whose id follows from the trace's name and the track's place."""
        place = f"{self.name}\0{parent.uuid if parent else 0}\0{parent.children if parent else 0}\0{name}"
        descriptor = TrackDescriptor(
            uuid=int.from_bytes(hashlib.sha256(place.encode()).digest()[:8], "big") or 1,
            name=name,
            child_ordering=TrackDescriptor.ChildTracksOrdering.EXPLICIT,
        )
        if parent is not None:
            descriptor.parent_uuid = parent.uuid
            descriptor.sibling_order_rank = parent.children
            parent.children += 1
        return descriptor

    def _declare(self, descriptor: Any, name: str) -> Track:
        packet = self._packet()
        packet.track_descriptor.CopyFrom(descriptor)
        self._write(packet)
        track = Track(descriptor.uuid, name)
        self._tracks.append(track)
        return track

    def _event(self, track: Track, t_ns: int, kind: Any) -> Any:
        if t_ns < track.last_ns:
            self.times_moved += 1
            t_ns = track.last_ns
        track.last_ns = t_ns
        packet = self._packet()
        packet.timestamp = t_ns
        packet.track_event.type = kind
        packet.track_event.track_uuid = track.uuid
        return packet

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE_ID
        if not self.packets:
            packet.first_packet_on_sequence = True
        return packet

    def _write(self, packet: Any) -> None:
        self._builder.write_packet(packet)
        self.packets += 1


def _annotate(packet: Any, details: Details) -> None:
    for name, value in details.items():
        annotation = packet.track_event.debug_annotations.add(name=name)
        if isinstance(value, str | int):
            _set_value(annotation, value)
        else:
            for each in value:
                _set_value(annotation.array_values.add(), each)


def _set_value(annotation: DebugAnnotation, value: str | int) -> None:
    if isinstance(value, str):
        annotation.string_value = value
    else:
        annotation.int_value = value
