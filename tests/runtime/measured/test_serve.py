import contextlib
import json
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contract.events import Producer, Stream
from contract.runtime_link import Subscribe
from runtime.measured.emit import EventEmitter
from runtime.measured.errors import AttemptFolderError
from runtime.measured.serve import MAX_READERS, EventServer
from tests.fakes.attempt_specs import ATTEMPT_ID


class Reader:
    """A device agent's end of the socket."""

    def __init__(self, path: Path, after: dict[Stream, int] | None = None) -> None:
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.settimeout(20)
        self.connection.connect(str(path))
        if after is not None:
            self.connection.sendall(Subscribe(after=after).model_dump_json().encode() + b"\n")
        self.file = self.connection.makefile("rb")

    def line(self) -> bytes:
        return self.file.readline()

    def rest(self) -> bytes:
        return b"".join(line for line in self.file if b'"heartbeat"' not in line)

    def close(self) -> None:
        self.file.close()
        self.connection.close()


@contextmanager
def serving(folder: Path, path: Path, heartbeat_s: float = 5.0) -> Iterator[tuple[EventEmitter, EventServer]]:
    emitter = EventEmitter(folder / "events.jsonl", ATTEMPT_ID, Producer(name="t", version="1"))
    server = EventServer(path, emitter, heartbeat_s)
    try:
        yield emitter, server
    finally:
        emitter.close()
        server.close()


def log_lines(emitter: EventEmitter, count: int) -> None:
    for number in range(count):
        emitter.log("info", f"line {number}")
    emitter.flush()


def test_a_reader_gets_what_the_file_holds_from_before_and_after(tmp_path: Path, socket_path: Path) -> None:
    with serving(tmp_path, socket_path) as (emitter, _):
        log_lines(emitter, 500)
        reader = Reader(socket_path, {})
        assert b"stream_opened" in reader.line()
        log_lines(emitter, 500)
        emitter.close()
        received = reader.rest()
        reader.close()
    held = (tmp_path / "events.jsonl").read_bytes()
    assert held.split(b"\n", 1)[1] == received


def test_a_reader_gets_only_what_it_does_not_have(tmp_path: Path, socket_path: Path) -> None:
    with serving(tmp_path, socket_path) as (emitter, _):
        log_lines(emitter, 3000)
        reader = Reader(socket_path, {Stream.LOG: 2990, Stream.CONTROL: 1})
        emitter.log("info", "new")
        emitter.close()
        events = [json.loads(line) for line in reader.rest().splitlines()]
        reader.close()
    assert [event["seq"] for event in events if event["type"] == "log_line"] == list(range(2991, 3003))
    assert [event["stream"] for event in events if event["type"] == "stream_opened"] == ["samples"]


def test_readers_do_not_disturb_each_other(tmp_path: Path, socket_path: Path) -> None:
    with serving(tmp_path, socket_path) as (emitter, _):
        gone = Reader(socket_path, {})
        gone.line()
        first, second = Reader(socket_path, {}), Reader(socket_path, {})
        log_lines(emitter, 200)
        gone.close()
        log_lines(emitter, 200)
        emitter.close()
        received = [first.rest(), second.rest()]
        first.close()
        second.close()
    held = (tmp_path / "events.jsonl").read_bytes()
    assert received == [held, held]


def test_a_reader_that_never_reads_does_not_hold_up_the_writer(tmp_path: Path, socket_path: Path) -> None:
    with serving(tmp_path, socket_path) as (emitter, server):
        stuck = Reader(socket_path, {})
        for _ in range(20):
            emitter.log("info", "x" * 4000)
        log_lines(emitter, 5000)
        assert len((tmp_path / "events.jsonl").read_bytes().splitlines()) == 5023
        emitter.close()
        server.close(drain_s=0.1)
        stuck.close()


def test_silence_is_filled_with_heartbeats(tmp_path: Path, socket_path: Path) -> None:
    with serving(tmp_path, socket_path, heartbeat_s=0.05) as (emitter, _):
        emitter.flush()
        reader = Reader(socket_path, {})
        for _ in range(3):
            reader.line()
        assert json.loads(reader.line()) == {"type": "heartbeat"}
        reader.close()


@pytest.mark.parametrize("said", [b"not json\n", b'{"after": {"control": -1}}\n', b"x" * 5000, b""])
def test_a_reader_that_subscribes_wrongly_is_cut_off_alone(
    tmp_path: Path, socket_path: Path, said: bytes
) -> None:
    with serving(tmp_path, socket_path) as (emitter, _):
        wrong = Reader(socket_path)
        wrong.connection.sendall(said)
        wrong.connection.shutdown(socket.SHUT_WR)
        # A connection closed with bytes unread is reset, which is also cut off.
        with contextlib.suppress(ConnectionResetError):
            assert wrong.line() == b""
        wrong.close()
        reader = Reader(socket_path, {})
        assert b"stream_opened" in reader.line()
        emitter.close()
        reader.close()


def test_more_readers_than_fit_are_turned_away(tmp_path: Path, socket_path: Path) -> None:
    with serving(tmp_path, socket_path) as (emitter, _):
        readers = [Reader(socket_path, {}) for _ in range(MAX_READERS)]
        for reader in readers:
            reader.line()
        one_more = Reader(socket_path)
        assert one_more.line() == b""
        one_more.close()
        emitter.close()
        for reader in readers:
            reader.close()


def test_only_the_owner_may_connect_and_the_socket_goes_away(tmp_path: Path, socket_path: Path) -> None:
    with serving(tmp_path, socket_path):
        assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
    assert not socket_path.exists()


def test_a_socket_left_by_a_dead_runtime_is_replaced(tmp_path: Path, socket_path: Path) -> None:
    socket_path.write_bytes(b"")
    with serving(tmp_path, socket_path):
        reader = Reader(socket_path, {})
        assert b"stream_opened" in reader.line()
        reader.close()


def test_a_path_that_cannot_be_bound_is_named(tmp_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, Producer(name="t", version="1"))
    with pytest.raises(AttemptFolderError, match="cannot be bound"):
        EventServer(tmp_path / ("x" * 200), emitter)
    emitter.close()


def test_closing_waits_for_a_reader_to_take_the_rest(tmp_path: Path, socket_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "events.jsonl", ATTEMPT_ID, Producer(name="t", version="1"))
    server = EventServer(socket_path, emitter)
    reader = Reader(socket_path, {})
    log_lines(emitter, 10_000)
    received: list[bytes] = []
    slow = threading.Thread(target=lambda: received.append(reader.rest()))
    slow.start()
    emitter.close()
    server.close(drain_s=60.0)
    slow.join()
    reader.close()
    assert received == [(tmp_path / "events.jsonl").read_bytes()]
