"""A strict reader of Perfetto traces: what its schema lacks, or the trace does not declare, is an error."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackDescriptor, TrackEvent

KIND = TrackEvent.Type


@dataclass
class Slice:
    """From begin to end, `depth` slices above it; details of both ends."""

    name: str
    begin_ns: int
    end_ns: int
    depth: int
    details: dict[str, Any]


@dataclass
class ReadTrack:
    """A track and all that lies on it, in the order of the file."""

    path: tuple[str, ...]
    descriptor: TrackDescriptor
    slices: list[Slice] = field(default_factory=list)
    instants: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    values: list[tuple[int, float]] = field(default_factory=list)
    last_ns: int = 0
    _open: list[Slice] = field(default_factory=list)

    def take(self, t_ns: int, event: TrackEvent) -> None:
        assert t_ns >= self.last_ns, f"time goes back on {self.path}"
        self.last_ns = t_ns
        is_counter = self.descriptor.HasField("counter")
        assert is_counter == (event.type == KIND.TYPE_COUNTER), f"{event} on {self.path}"
        details = {each.name: value_of(each) for each in event.debug_annotations}
        if event.type == KIND.TYPE_SLICE_BEGIN:
            assert event.name
            self._open.append(Slice(event.name, t_ns, -1, len(self._open), details))
        elif event.type == KIND.TYPE_SLICE_END:
            assert self._open, f"an end without a begin on {self.path}"
            ended = self._open.pop()
            ended.end_ns = t_ns
            ended.details |= details
            self.slices.append(ended)
        elif event.type == KIND.TYPE_INSTANT:
            assert event.name
            self.instants.append((t_ns, event.name, details))
        else:
            assert event.type == KIND.TYPE_COUNTER
            which = "counter_value" if event.HasField("counter_value") else "double_counter_value"
            assert event.HasField(which)
            self.values.append((t_ns, getattr(event, which)))

    def close(self) -> None:
        assert not self._open, f"{[each.name for each in self._open]} never end on {self.path}"
        self.slices.sort(key=lambda each: (each.begin_ns, each.depth))


def read_trace(content: bytes) -> dict[tuple[str, ...], ReadTrack]:
    """Tracks by the names from the root to them; an AssertionError where the trace is not sound."""
    trace = Trace.FromString(content)
    assert_known(trace)
    by_uuid: dict[int, ReadTrack] = {}
    for number, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        assert packet.first_packet_on_sequence == (number == 0)
        kind = packet.WhichOneof("data")
        if kind == "track_descriptor":
            descriptor = packet.track_descriptor
            assert descriptor.uuid
            assert descriptor.uuid not in by_uuid, "two tracks have one id"
            above = by_uuid[descriptor.parent_uuid].path if descriptor.HasField("parent_uuid") else ()
            by_uuid[descriptor.uuid] = ReadTrack((*above, descriptor.name), descriptor)
        else:
            assert kind == "track_event"
            assert packet.HasField("timestamp")
            by_uuid[packet.track_event.track_uuid].take(packet.timestamp, packet.track_event)
    for track in by_uuid.values():
        track.close()
    tracks = {track.path: track for track in by_uuid.values()}
    assert len(tracks) == len(by_uuid), "two tracks have one place"
    return tracks


def assert_known(message: Message) -> None:
    """No field anywhere that the schema lacks."""
    unknown = [each.field_number for each in UnknownFieldSet(message)]
    assert not unknown, f"{message.DESCRIPTOR.full_name} has unknown fields {unknown}"
    for below in messages_in(message):
        assert_known(below)


def messages_in(message: Message) -> Iterator[Message]:
    for descriptor, value in message.ListFields():
        if descriptor.type == descriptor.TYPE_MESSAGE:
            yield from value if descriptor.is_repeated else [value]


def value_of(annotation: Any) -> Any:
    if annotation.array_values:
        return [value_of(each) for each in annotation.array_values]
    which = annotation.WhichOneof("value")
    return getattr(annotation, which) if which else []
