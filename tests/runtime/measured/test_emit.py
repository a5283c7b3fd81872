import re
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from contract.events import KvSampled, LogLine, Producer, Stream, ToolWaitStarted, parse_event
from contract.events.envelope import EventEnvelope
from runtime.measured.emit import PENDING_SEQ, RUNTIME_STREAMS, EmitLimits, EventEmitter, stream_of
from runtime.measured.errors import AttemptFolderError, EventsNotWrittenError
from tests.fakes.attempt_specs import ATTEMPT_ID

PRODUCER = Producer(name="test", version="1")


def control(t_mono_ns: int) -> ToolWaitStarted:
    return ToolWaitStarted(seq=PENDING_SEQ, t_mono_ns=t_mono_ns, trial=1, agent="a", call=0, tool="probe")


def sample(t_mono_ns: int) -> KvSampled:
    return KvSampled(
        seq=PENDING_SEQ,
        t_mono_ns=t_mono_ns,
        trial=1,
        blocks_total=1,
        blocks_used=0,
        blocks_cached=0,
        blocks_free=1,
        sequences_running=0,
        sequences_waiting=0,
    )


def lines(path: Path) -> list[EventEnvelope]:
    return [parse_event(line) for line in path.read_bytes().splitlines()]


def by_stream(events: list[EventEnvelope]) -> dict[Stream, list[EventEnvelope]]:
    streams: dict[Stream, list[EventEnvelope]] = defaultdict(list)
    for event in events:
        streams[stream_of(event)].append(event)
    return streams


def test_every_stream_opens_with_stream_opened(tmp_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER)
    emitter.close()
    opened = lines(tmp_path / "e")
    assert [event.stream for event in opened] == list(RUNTIME_STREAMS)
    assert {event.attempt_id for event in opened} == {ATTEMPT_ID}


def test_each_stream_counts_from_one_without_a_gap_from_many_threads(tmp_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER)

    def produce() -> None:
        for _ in range(300):
            emitter.emit(control(time.monotonic_ns()))
            emitter.emit(sample(time.monotonic_ns()))
            emitter.log("info", "line")

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    emitter.close()
    for stream, events in by_stream(lines(tmp_path / "e")).items():
        assert [event.seq for event in events] == list(range(1, 1202)), stream
        times = [event.t_mono_ns for event in events]
        assert times == sorted(times), stream


def test_an_event_that_was_overtaken_is_not_before_the_one_ahead_of_it(tmp_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER)
    late_ns = time.monotonic_ns() + 10**9
    emitter.emit(control(late_ns))
    emitter.emit(control(late_ns - 5))
    emitter.close()
    assert [event.t_mono_ns for event in lines(tmp_path / "e")[-2:]] == [late_ns, late_ns]


def test_a_full_queue_drops_log_and_samples_before_they_are_numbered_and_counts_them(tmp_path: Path) -> None:
    # The writer sleeps through the burst: everything below is decided by the queue alone.
    limits = EmitLimits(queue_events=40, write_interval_s=0.5)
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER, limits)
    emitter.flush()
    for _ in range(30):
        emitter.log("debug", "trace")
    for _ in range(20):
        emitter.emit(sample(time.monotonic_ns()))
    for _ in range(10):
        emitter.emit(control(time.monotonic_ns()))
    emitter.close()
    streams = by_stream(lines(tmp_path / "e"))
    counts = Counter(event.type for events in streams.values() for event in events)
    assert counts["kv_sampled"] == 10
    assert counts["tool_wait_started"] == 10
    for events in streams.values():
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
    warning = streams[Stream.LOG][-1]
    assert isinstance(warning, LogLine)
    assert warning.level == "warning"
    assert "10 of log, 10 of samples" in warning.message


def test_control_events_wait_for_room_and_none_is_lost(tmp_path: Path) -> None:
    limits = EmitLimits(queue_events=8, write_interval_s=0.2)
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER, limits)
    for _ in range(200):
        emitter.emit(control(time.monotonic_ns()))
    emitter.close()
    streams = by_stream(lines(tmp_path / "e"))
    assert len(streams[Stream.CONTROL]) == 201
    # How much it was held up is told: a measurement under it is not a measurement.
    told = " ".join(event.message for event in streams[Stream.LOG] if isinstance(event, LogLine))
    waits = [
        int(count)
        for count in re.findall(
            r"the event queue was full (\d+) times; the engine was blocked for \d+ ms", told
        )
    ]
    assert sum(waits) >= 20


def test_a_step_pays_for_a_place_in_the_queue_and_not_for_the_disk(tmp_path: Path) -> None:
    # The writer sleeps: whatever is in the file was there before.
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER, EmitLimits(write_interval_s=5.0))
    emitter.flush()
    before = emitter.wait_written(-1, 0.0).size_bytes
    for _ in range(1000):
        emitter.emit(control(time.monotonic_ns()))
    assert emitter.wait_written(-1, 0.0).size_bytes == before
    emitter.close()
    streams = by_stream(lines(tmp_path / "e"))
    assert len(streams[Stream.CONTROL]) == 1001
    assert [event.type for event in streams[Stream.LOG]] == ["stream_opened"], (
        "nobody waited, nothing is lost"
    )


def test_what_was_flushed_is_in_the_file_and_only_whole_lines_are_announced(tmp_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER)
    emitter.emit(control(time.monotonic_ns()))
    emitter.flush()
    written = emitter.wait_written(0, 1.0)
    assert written.size_bytes == (tmp_path / "e").stat().st_size
    assert len(lines(tmp_path / "e")) == 4
    assert not written.complete
    emitter.close()
    assert emitter.wait_written(written.size_bytes, 1.0).complete


def test_a_file_that_is_there_already_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes(b"of another runtime\n")
    with pytest.raises(AttemptFolderError, match="cannot be created"):
        EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER)
    assert (tmp_path / "e").read_bytes() == b"of another runtime\n"


def test_events_after_the_close_are_ignored_and_closing_twice_is_harmless(tmp_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER)
    emitter.close()
    emitter.emit(control(1))
    emitter.close()
    assert len(lines(tmp_path / "e")) == 3


def test_a_message_for_people_is_cut_to_fit_a_line(tmp_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER)
    emitter.log("error", "\x00" * 1_000_000)
    emitter.close()
    assert isinstance(lines(tmp_path / "e")[-1], LogLine)


def test_a_message_with_a_broken_character_is_written_with_another_in_its_place(tmp_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER)
    # Such is a path that is not UTF-8, in the text of an error.
    emitter.log("error", b"/models/caf\xe9.gguf".decode("utf-8", "surrogateescape"))
    emitter.close()
    last = lines(tmp_path / "e")[-1]
    assert isinstance(last, LogLine)
    assert last.message == "/models/caf\ufffd.gguf"


def test_an_event_that_cannot_be_written_is_an_error_and_no_silent_loss(tmp_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER)
    emitter.emit(control(1).model_copy(update={"tool": "\ud800"}))
    emitter.emit(control(2))
    with pytest.raises(EventsNotWrittenError, match=r"\w+Error: "):
        emitter.close()


_FULL_DISK = """
import resource, sys, time
from pathlib import Path
from contract.events import Producer
from runtime.measured.emit import EmitLimits, EventEmitter
from runtime.measured.errors import EventsNotWrittenError

resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
limits = EmitLimits(stall_s=0.3)
emitter = EventEmitter(Path(sys.argv[1]), sys.argv[2], Producer(name="t", version="1"), limits)
try:
    for _ in range(10_000):
        emitter.log("info", "x" * 100)
        time.sleep(0.0005)
    emitter.close()
except EventsNotWrittenError:
    sys.exit(7)
"""


def test_a_full_disk_ends_the_attempt_with_a_named_error(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(tmp_path / "e"), ATTEMPT_ID],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 7, ended.stderr
    whole, _, torn = (tmp_path / "e").read_bytes().rpartition(b"\n")
    assert len(torn) < 2000
    assert all(parse_event(line) for line in whole.splitlines())


def test_flush_says_when_the_disk_takes_nothing(tmp_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, PRODUCER, EmitLimits(write_interval_s=5.0))
    with pytest.raises(EventsNotWrittenError):
        emitter.flush(timeout_s=0.0)
    emitter.close()
