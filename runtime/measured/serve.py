"""The socket on which the device agent follows the events: a replay from the file, then the file as it grows.

Every reader has a thread and reads the file for itself, so that no reader can hold up the writer, disturb
another or lose a line: what the socket brings is what the file holds.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contract.events import STREAMS_OF_TYPE, Stream
from contract.runtime_link import HEARTBEAT_INTERVAL_S, MAX_SUBSCRIBE_BYTES, Heartbeat, Subscribe
from runtime.measured.emit import RUNTIME_STREAMS, EventEmitter
from runtime.measured.errors import AttemptFolderError

MAX_READERS: Final = 4
_PATIENCE_S: Final = 10.0
"""For a reader that connects and says nothing, or stops reading: it may come back and lose nothing."""
_CHUNK_BYTES: Final = 256 * 1024
_HEARTBEAT: Final = Heartbeat().model_dump_json().encode() + b"\n"


class EventServer:
    """Serves the emitter's file on the Unix socket `path` (mode 0600) until `close`.

    AttemptFolderError when the socket cannot be bound.
    """

    def __init__(
        self, path: Path, emitter: EventEmitter, heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S
    ) -> None:
        self._path = path
        self._emitter = emitter
        self._heartbeat_interval_s = heartbeat_interval_s
        self._listener = _listen(path)
        self._readers: set[threading.Thread] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="events-server", daemon=True)
        self._thread.start()

    def close(self, drain_s: float = 5.0) -> None:
        """Accepts nobody any more and gives readers `drain_s` to take the rest; close the emitter first."""
        self._closing.set()
        # A blocked accept does not notice that its socket was closed; a shutdown wakes it on Linux, and the
        # time-out of the listener does elsewhere.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        deadline_s = time.monotonic() + drain_s
        self._thread.join(drain_s)
        for reader in list(self._readers):
            reader.join(max(0.0, deadline_s - time.monotonic()))
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self._readers = {reader for reader in self._readers if reader.is_alive()}
            if len(self._readers) >= MAX_READERS:
                connection.close()
                continue
            reader = threading.Thread(
                target=self._serve, args=(connection,), name="events-reader", daemon=True
            )
            self._readers.add(reader)
            reader.start()

    def _serve(self, connection: socket.socket) -> None:
        # A reader that goes away ends its own connection and nothing else.
        with connection, contextlib.suppress(OSError, ValidationError):
            connection.settimeout(_PATIENCE_S)
            after = _read_subscription(connection).after
            with self._emitter.path.open("rb", buffering=0) as file:
                sent_bytes = self._replay(connection, file.fileno(), after)
                self._follow(connection, file.fileno(), sent_bytes)

    def _replay(self, connection: socket.socket, file: int, after: Mapping[Stream, int]) -> int:
        """Sends what is written now and newer than `after`; returns how far that went.

        Only here lines are looked into: what is written later is newer than anything a reader can have.
        """
        limit_bytes = self._emitter.wait_written(-1, 0.0).size_bytes
        if not any(after.values()):
            return 0
        for lines in _whole_lines(file, limit_bytes):
            wanted = [line for line in lines if _is_newer(line, after)]
            if wanted:
                connection.sendall(b"".join(wanted))
        return limit_bytes

    def _follow(self, connection: socket.socket, file: int, sent_bytes: int) -> None:
        while True:
            written = self._emitter.wait_written(sent_bytes, self._heartbeat_interval_s)
            if written.size_bytes == sent_bytes:
                if written.complete:
                    return
                connection.sendall(_HEARTBEAT)
            while sent_bytes < written.size_bytes:
                chunk = os.pread(file, min(_CHUNK_BYTES, written.size_bytes - sent_bytes), sent_bytes)
                connection.sendall(chunk)
                sent_bytes += len(chunk)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        # The mode of the socket is set before anybody can connect to it.
        mask = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(mask)
        listener.listen(MAX_READERS)
        listener.settimeout(1.0)
    except OSError as error:
        listener.close()
        raise AttemptFolderError(path, f"the socket cannot be bound: {error}") from error
    return listener


def _read_subscription(connection: socket.socket) -> Subscribe:
    received = b""
    while b"\n" not in received:
        piece = connection.recv(MAX_SUBSCRIBE_BYTES)
        received += piece
        if not piece or len(received) > MAX_SUBSCRIBE_BYTES:
            raise ConnectionError("no subscription came")
    return Subscribe.model_validate_json(received.split(b"\n", 1)[0])


def _whole_lines(file: int, limit_bytes: int) -> Iterator[list[bytes]]:
    position, rest = 0, b""
    while position < limit_bytes:
        chunk = os.pread(file, min(_CHUNK_BYTES, limit_bytes - position), position)
        position += len(chunk)
        lines = (rest + chunk).splitlines(keepends=True)
        rest = lines.pop() if not lines[-1].endswith(b"\n") else b""
        yield lines


def _is_newer(line: bytes, after: Mapping[Stream, int]) -> bool:
    event = json.loads(line)
    if event["type"] == "stream_opened":
        stream = Stream(event["stream"])
    else:
        stream = next(s for s in RUNTIME_STREAMS if s in STREAMS_OF_TYPE[event["type"]])
    return bool(event["seq"] > after.get(stream, 0))
