"""What is written is what Perfetto's own schema reads."""

import io
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor

from client.trace.perfetto_file import PerfettoFile, Unit
from tests.client.trace.read_trace import read_trace


def test_tracks_are_a_tree_in_the_order_in_which_they_were_declared() -> None:
    out = io.BytesIO()
    file = PerfettoFile(out, "attempt x")
    first = file.track("first", file.root)
    file.track("below", first)
    file.counter("bytes", file.root, Unit.BYTES)
    tracks = read_trace(out.getvalue())
    assert list(tracks) == [
        ("attempt x",),
        ("attempt x", "first"),
        ("attempt x", "first", "below"),
        ("attempt x", "bytes"),
    ]
    assert tracks["attempt x",].descriptor.process.process_name == "attempt x"
    assert [track.descriptor.sibling_order_rank for track in tracks.values()] == [0, 0, 0, 1]
    unit = tracks["attempt x", "bytes"].descriptor.counter.unit
    assert unit == CounterDescriptor.Unit.UNIT_SIZE_BYTES


def test_the_same_events_give_the_same_bytes_and_another_name_other_ids() -> None:
    def ids(name: str) -> Iterator[int]:
        out = io.BytesIO()
        file = PerfettoFile(out, name)
        file.track("a", file.root)
        return (track.descriptor.uuid for track in read_trace(out.getvalue()).values())

    assert list(ids("x")) == list(ids("x"))
    assert not set(ids("x")) & set(ids("y"))


def test_details_of_every_kind_come_back() -> None:
    out = io.BytesIO()
    file = PerfettoFile(out, "x")
    track = file.track("a", file.root)
    file.begin(track, 5, "outer", {"text": "t", "number": -3, "blocks": [1, 2], "none": []})
    file.instant(track, 6, "mark", {"why": ["a", 1]})
    file.end(track, 9, {"done": 1})
    read = read_trace(out.getvalue())["x", "a"]
    assert read.slices[0].details == {"text": "t", "number": -3, "blocks": [1, 2], "none": [], "done": 1}
    assert read.instants == [(6, "mark", {"why": ["a", 1]})]


def test_an_end_without_a_begin_is_an_error() -> None:
    file = PerfettoFile(io.BytesIO(), "x")
    track = file.track("a", file.root)
    with pytest.raises(ValueError, match="no slice is open on a"):
        file.end(track, 1)


def test_what_is_open_at_the_end_is_closed_and_says_so() -> None:
    out = io.BytesIO()
    file = PerfettoFile(out, "x")
    track = file.track("a", file.root)
    file.begin(track, 1, "outer")
    file.begin(track, 2, "inner")
    file.close_slices(7)
    slices = read_trace(out.getvalue())["x", "a"].slices
    assert [(each.name, each.end_ns, "unfinished" in each.details) for each in slices] == [
        ("outer", 7, True),
        ("inner", 7, True),
    ]


@given(st.lists(st.tuples(st.sampled_from(["begin", "end", "instant", "value"]), st.integers(0, 2**62))))
def test_any_order_of_calls_and_times_gives_a_sound_trace(calls: list[tuple[str, int]]) -> None:
    out = io.BytesIO()
    file = PerfettoFile(out, "x")
    track = file.track("a", file.root)
    counter = file.counter("n", file.root, Unit.COUNT)
    last_ns = moved = 0
    for name, t_ns in calls:
        if name == "value":
            file.value(counter, max(t_ns, counter.last_ns), t_ns / 2)
            continue
        if name == "end" and not track.open_slices:
            continue
        moved += t_ns < last_ns
        last_ns = max(last_ns, t_ns)
        getattr(file, name)(track, t_ns, *(() if name == "end" else (name,)))
    file.close_slices(2**62)
    tracks = read_trace(out.getvalue())
    assert len(tracks["x", "a"].slices) == sum(name == "begin" for name, _ in calls)
    assert file.times_moved == moved
