"""Lost and duplicated events: counted by comparing two accounts of the same streams."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.api import DynofarmClient
from client.errors import InfrastructureError
from client.event_audit import (
    EventAudit,
    audit_numbers,
    audit_run,
    compare_events,
    stream_of,
    written_events,
)
from client.farm_home import FarmHome
from contract.events import STREAMS_OF_TYPE, Stream
from tests.client.conftest import AddRun

StreamAndEvent = tuple[Stream, dict[str, Any]]


def _events(count: int, stream: Stream = Stream.CONTROL) -> list[StreamAndEvent]:
    return [(stream, {"type": "log_line", "seq": seq, "value": seq * 0.1}) for seq in range(1, count + 1)]


events = st.builds(
    lambda control, samples: _events(control) + _events(samples, Stream.SAMPLES),
    st.integers(0, 8),
    st.integers(0, 8),
)


@given(events, st.randoms())
def test_the_same_events_in_any_order_are_neither_lost_nor_doubled(
    written: list[StreamAndEvent], chance: random.Random
) -> None:
    stored = list(written)
    chance.shuffle(stored)
    audit = compare_events(written, stored)
    assert audit == EventAudit(len(written), len(written), 0, 0)


@given(events, st.data())
def test_every_dropped_and_every_repeated_event_is_counted(
    written: list[StreamAndEvent], data: st.DataObject
) -> None:
    copies = [data.draw(st.integers(0, 3)) for _ in written]
    stored = [event for event, count in zip(written, copies, strict=True) for _ in range(count)]
    audit = compare_events(written, stored)
    assert audit.lost == copies.count(0)
    assert audit.duplicated == sum(max(0, count - 1) for count in copies)


def test_a_changed_event_is_lost_and_one_too_many() -> None:
    written = _events(3)
    stored = [*written[:2], (Stream.CONTROL, {**written[2][1], "value": 9.9})]
    assert compare_events(written, stored) == EventAudit(3, 3, 1, 1)


def test_the_same_number_in_another_stream_is_another_event() -> None:
    assert compare_events(_events(1), _events(1, Stream.SAMPLES)) == EventAudit(1, 1, 1, 1)


@pytest.mark.parametrize(
    ("seqs", "lost", "duplicated"),
    [([], 0, 0), ([1, 2, 3], 0, 0), ([3, 1], 1, 0), ([1, 1, 2], 0, 1), ([2, 2, 4], 2, 1)],
)
def test_a_stream_without_a_file_is_judged_by_its_numbers(
    seqs: list[int], lost: int, duplicated: int
) -> None:
    audit = audit_numbers(seqs)
    assert (audit.lost, audit.duplicated) == (lost, duplicated)


def test_every_type_that_a_runtime_writes_has_one_stream() -> None:
    for kind, streams in STREAMS_OF_TYPE.items():
        if kind == "stream_opened":
            assert stream_of({"type": kind, "stream": "log"}) is Stream.LOG
        elif streams != {Stream.DEVICE_AGENT}:
            assert stream_of({"type": kind}) in streams


def test_a_torn_last_line_is_no_event(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b'{"seq": 1}\n{"seq": 2}\n{"se')
    assert written_events(tmp_path / "events.jsonl") == [{"seq": 1}, {"seq": 2}]
    assert written_events(tmp_path / "none.jsonl") == []


def test_a_line_that_is_no_json_is_told_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b"{}\nnothing\n")
    with pytest.raises(InfrastructureError, match=r"events\.jsonl"):
        written_events(tmp_path / "events.jsonl")


@pytest.mark.parametrize("torn", [False, True])
def test_a_run_is_audited_from_its_files_and_from_the_store(
    client: DynofarmClient, add_run: AddRun, tmp_path: Path, torn: bool
) -> None:
    run = add_run(polls=0)
    run.look()
    home = FarmHome(tmp_path)
    file = home.events_file(run.attempt_id)
    file.parent.mkdir(parents=True)
    lines = run.written_lines()
    file.write_bytes(lines[:-10] if torn else lines)
    audit = audit_run(client, home, client.run(run.run_id))
    assert audit.stored > 100
    # What is in the store and not in the file counts against us as well.
    assert (audit.lost, audit.duplicated) == (0, int(torn))


def test_a_file_that_is_gone_is_no_proof(client: DynofarmClient, add_run: AddRun, tmp_path: Path) -> None:
    run = add_run(polls=0)
    run.look()
    with pytest.raises(InfrastructureError, match="is gone"):
        audit_run(client, FarmHome(tmp_path), client.run(run.run_id))
