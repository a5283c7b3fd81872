"""The spool against the simplest thing that could be right: a list per stream."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contract.events import HostSampled, SpoolDropped, parse_event
from contract.events.envelope import Stream
from device_agent.collect.spool import Arrivals, Spool
from device_agent.floor.errors import SpoolBehindError, SpoolFullError
from tests.fakes.lines import arrived, line

C, S, L, A = Stream.CONTROL, Stream.SAMPLES, Stream.LOG, Stream.DEVICE_AGENT
LARGE = 1 << 30


def host_sample(seq: int) -> HostSampled:
    return HostSampled(seq=seq, t_mono_ns=seq, others_cpu_percent=None, disk_free_bytes=1, open_files=1)


def seqs(spool: Spool, stream: Stream) -> list[int]:
    batch = spool.next_batch(stream, LARGE, 100_000)
    return [parse_event(each).seq for each in batch.lines] if batch else []


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool.sqlite", LARGE)


def test_what_is_taken_twice_is_kept_once(spool: Spool) -> None:
    spool.take(Arrivals({C: arrived(C, 1, 2, 3)}))
    spool.take(Arrivals({C: arrived(C, 2, 3, 4)}))
    assert seqs(spool, C) == [1, 2, 3, 4]
    assert spool.source_seqs()[C] == 4


def test_a_gap_is_refused_and_nothing_of_the_call_is_kept(spool: Spool) -> None:
    with pytest.raises(ValueError, match="control: 3 does not follow 1"):
        spool.take(Arrivals({S: arrived(S, 1), C: arrived(C, 1, 3)}, file_offset=9, notes=[host_sample]))
    assert spool.last_seqs() == {}
    assert spool.file_offset() == 0


def test_an_upload_is_byte_for_byte_what_the_runtime_wrote(spool: Spool) -> None:
    spool.take(Arrivals({C: arrived(C, 1, 2)}))
    batch = spool.next_batch(C, LARGE, 10)
    assert batch is not None
    assert batch.lines == (line(C, 1), line(C, 2))


def test_a_batch_keeps_to_its_limits_but_has_at_least_one_line(spool: Spool) -> None:
    spool.take(Arrivals({C: arrived(C, 1, 2, 3, 4)}))
    size_bytes = len(line(C, 1)) + len(line(C, 2)) + 2
    by_bytes = spool.next_batch(C, size_bytes, 10)
    by_lines = spool.next_batch(C, LARGE, 3)
    too_small = spool.next_batch(C, 1, 10)
    assert [len(batch.lines) for batch in (by_bytes, by_lines, too_small) if batch] == [2, 3, 1]


def test_a_rewind_sends_again_and_a_server_ahead_of_us_is_an_error(spool: Spool) -> None:
    spool.take(Arrivals({C: arrived(C, 1, 2, 3)}))
    spool.acknowledge(C, 4)
    assert spool.next_batch(C, LARGE, 10) is None
    spool.acknowledge(C, 2)
    assert seqs(spool, C) == [2, 3]
    with pytest.raises(SpoolBehindError):
        spool.acknowledge(C, 5)


def test_a_full_quota_drops_log_thins_samples_and_leaves_every_stream_without_gap(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite", quota_bytes=64 * 1024)
    for start in range(1, 1501, 10):
        block = range(start, start + 10)
        streams = {stream: arrived(stream, *block, text="y" * 40) for stream in (C, S, L)}
        spool.take(Arrivals(streams))
    spool.record(host_sample)
    spool.report_drops(5)
    spool.report_drops(6)
    for stream, last_seq in spool.last_seqs().items():
        assert seqs(spool, stream) == list(range(1, last_seq + 1))
    kept, dropped = spool.last_seqs(), spool.dropped()
    assert kept[C] == 1500
    assert {stream: kept[stream] + dropped[stream] for stream in (S, L)} == {S: 1500, L: 1500}
    told = [e for e in spool.events(A, "spool_dropped") if isinstance(e, SpoolDropped)]
    assert {e.stream: e.count for e in told} == dropped
    assert spool.source_seqs() == {C: 1500, S: 1500, L: 1500}


def test_dropped_events_stay_counted_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    first = Spool(path, LARGE)
    first.take(Arrivals(dropped={C: 3}))
    first.report_drops(1)
    first.take(Arrivals(dropped={C: 2}))
    second = Spool(path, LARGE)
    second.report_drops(2)
    told = [e for e in second.events(A, "spool_dropped") if isinstance(e, SpoolDropped)]
    assert [e.count for e in told] == [3, 2]


def test_a_full_disk_is_a_typed_error_that_keeps_nothing_of_the_call(spool: Spool) -> None:
    spool.take(Arrivals({C: arrived(C, 1)}))
    spool.limit_pages(1)
    with pytest.raises(SpoolFullError):
        spool.take(Arrivals({S: arrived(S, *range(1, 500), text="z" * 100)}))
    assert spool.last_seqs() == {C: 1}
    spool.limit_pages(100_000)
    spool.take(Arrivals({S: arrived(S, 1)}))
    assert spool.last_seqs() == {C: 1, S: 1}


class SpoolAgainstLists(RuleBasedStateMachine):
    """Any interleaving of taking, repeating, recording, acknowledging, rewinding and dying keeps 1..n."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.written: dict[Stream, int] = dict.fromkeys(Stream, 0)
        self.server: dict[Stream, list[bytes]] = {stream: [] for stream in Stream}
        self.offset = 0

    @initialize()
    def open(self) -> None:
        self.spool = Spool(Path(self.folder.name) / "spool.sqlite", LARGE)

    @rule()
    def die_and_reopen(self) -> None:
        """No close: what a killed process leaves behind."""
        self.spool = Spool(Path(self.folder.name) / "spool.sqlite", LARGE)

    @rule(stream=st.sampled_from([C, S, L]), back=st.integers(0, 4), count=st.integers(1, 5))
    def take(self, stream: Stream, back: int, count: int) -> None:
        start = max(1, self.written[stream] + 1 - back)
        block = range(start, start + count)
        self.offset += 1
        self.spool.take(Arrivals({stream: arrived(stream, *block)}, self.offset))
        self.written[stream] = max(self.written[stream], block[-1])

    @rule(stream=st.sampled_from([C, S, L]))
    def a_gap_changes_nothing(self, stream: Stream) -> None:
        with pytest.raises(ValueError, match="does not follow"):
            self.spool.take(Arrivals({stream: arrived(stream, self.written[stream] + 2)}, self.offset + 7))

    @rule()
    def record(self) -> None:
        self.spool.record(host_sample)
        self.written[A] += 1

    @rule(stream=st.sampled_from(Stream), count=st.integers(1, 4))
    def upload(self, stream: Stream, count: int) -> None:
        batch = self.spool.next_batch(stream, LARGE, count)
        if batch is None:
            assert len(self.server[stream]) == self.written[stream]
            return
        stored = self.server[stream]
        assert batch.first_seq <= len(stored) + 1
        assert all(
            stored[i] == each for i, each in enumerate(batch.lines, batch.first_seq - 1) if i < len(stored)
        )
        stored[batch.first_seq - 1 :] = batch.lines
        self.spool.acknowledge(stream, len(stored) + 1)

    @precondition(lambda self: any(self.server.values()))
    @rule(stream=st.sampled_from(Stream), keep=st.integers(0, 10))
    def the_server_is_restored(self, stream: Stream, keep: int) -> None:
        del self.server[stream][keep:]
        self.spool.acknowledge(stream, len(self.server[stream]) + 1)

    @invariant()
    def every_stream_counts_from_one(self) -> None:
        if not hasattr(self, "spool"):
            return
        assert self.spool.last_seqs() == {s: n for s, n in self.written.items() if n}
        assert self.spool.backlog() == sum(
            self.written[stream] - len(self.server[stream]) for stream in Stream
        )
        assert self.spool.file_offset() == self.offset
        for stream in Stream:
            assert [parse_event(each).seq for each in self.server[stream]] == list(
                range(1, len(self.server[stream]) + 1)
            )

    def teardown(self) -> None:
        self.spool.close()
        self.folder.cleanup()


TestSpoolAgainstLists = SpoolAgainstLists.TestCase
TestSpoolAgainstLists.settings = settings(max_examples=25, stateful_step_count=20)
