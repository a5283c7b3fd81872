"""Reads a runtime: live from its socket, and from events.jsonl whatever the socket did not bring."""

import asyncio
from contextlib import suppress
from pathlib import Path

import structlog
from pydantic import ValidationError

from contract.events import MAX_EVENT_LINE_BYTES, TransportLost
from contract.runtime_link import HEARTBEAT_INTERVAL_S, Heartbeat, Subscribe
from device_agent.collect.framing import LineFramer
from device_agent.collect.intake import Intake, LinkBrokenError
from device_agent.collect.spool import Spool
from device_agent.floor.clock import monotonic_ns
from device_agent.floor.errors import SpoolFullError

_log = structlog.get_logger(__name__)

_CHUNK_BYTES = 256 * 1024
_CONNECT_DEADLINE_S = 2.0
# Three heartbeats missed: the connection is dead although nobody closed it.
_SILENCE_DEADLINE_S = 3 * HEARTBEAT_INTERVAL_S + 1.0
_RECONNECT_S = 0.25
_DRAIN_DEADLINE_S = 2.0


class RuntimeLink:
    """Follows one runtime until told to finish; `spool_full` says that the disk is full now."""

    def __init__(self, socket_path: Path, events_path: Path, spool: Spool, intake: Intake) -> None:
        """The socket and the file may appear later, or never."""
        self._socket_path = socket_path
        self._events_path = events_path
        self._spool = spool
        self._intake = intake
        self._finishing = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self.spool_full = False

    def start(self) -> None:
        """Begin to follow, in a task of its own."""
        self._following = asyncio.create_task(self._follow())

    def check(self) -> None:
        """Raise what ended the reading task, if something did: reading never ends by itself."""
        if self._following is not None and self._following.done() and not self._finishing.is_set():
            self._following.result()

    async def finish(self) -> bool:
        """The runtime has ended: take what is left. True when all of it is in the spool."""
        self._finishing.set()
        if self._following is not None:
            await asyncio.wait([self._following], timeout=_DRAIN_DEADLINE_S)
            await self.stop()
        # A runtime that was killed left its socket behind, and nobody else would ever remove it.
        with suppress(OSError):
            self._socket_path.unlink()
        return await self._complete_from_file()

    async def stop(self) -> None:
        """Stop reading; nothing is lost, the file is still there."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
            self._following = None

    async def _follow(self) -> None:
        while not self._finishing.is_set():
            lost = await self._listen_once()
            await self._complete_from_file()
            if lost and not self._finishing.is_set():
                _log.warning("transport_lost", detail=lost)
                await self._note_lost(lost)
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_RECONNECT_S):
                await self._finishing.wait()
        except TimeoutError:
            return

    async def _listen_once(self) -> str:
        """Read until the connection ends; why it was lost, "" when there was none or it ended in order."""
        try:
            async with asyncio.timeout(_CONNECT_DEADLINE_S):
                reader, writer = await asyncio.open_unix_connection(self._socket_path)
        except (OSError, TimeoutError):
            return ""
        try:
            after = await asyncio.to_thread(self._spool.source_seqs)
            writer.write(Subscribe(after=after).model_dump_json().encode() + b"\n")
            async with asyncio.timeout(_CONNECT_DEADLINE_S):
                await writer.drain()
            await self._read_lines(reader)
        except LinkBrokenError as error:
            return "" if self._intake.progress.invalid else str(error)
        except TimeoutError:
            return f"nothing came for {_SILENCE_DEADLINE_S:.0f} s, not even a heartbeat"
        except SpoolFullError:
            self.spool_full = True
            return ""
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        finally:
            writer.close()
        return ""

    async def _read_lines(self, reader: asyncio.StreamReader) -> None:
        framer = LineFramer(MAX_EVENT_LINE_BYTES)
        while True:
            async with asyncio.timeout(_SILENCE_DEADLINE_S):
                chunk = await reader.read(_CHUNK_BYTES)
            if not chunk:
                return
            lines = framer.feed(chunk)
            events = [line for line in lines if isinstance(line, bytes) and not _is_heartbeat(line)]
            if events:
                await asyncio.to_thread(self._intake.from_socket, events)
                self.spool_full = False
            if any(not isinstance(line, bytes) for line in lines):
                raise LinkBrokenError("a line is too long")

    async def _complete_from_file(self) -> bool:
        try:
            await asyncio.to_thread(self._read_file)
        except SpoolFullError as error:
            # Once, not at every try: the log may be on the same disk.
            if not self.spool_full:
                _log.error("spool_full", detail=str(error))
            self.spool_full = True
            return False
        self.spool_full = False
        return True

    def _read_file(self) -> None:
        """From where the spool is to the last whole line; a torn last line is not an event."""
        framer = LineFramer(MAX_EVENT_LINE_BYTES)
        offset = self._spool.file_offset()
        try:
            with self._events_path.open("rb") as file:
                file.seek(offset)
                while chunk := file.read(_CHUNK_BYTES):
                    offset += len(chunk)
                    if lines := framer.feed(chunk):
                        self._intake.from_file(lines, offset - framer.pending_bytes)
        except FileNotFoundError:
            return

    async def _note_lost(self, detail: str) -> None:
        try:
            await asyncio.to_thread(
                self._spool.record,
                lambda seq: TransportLost(seq=seq, t_mono_ns=monotonic_ns(), detail=detail[:1000]),
            )
        except SpoolFullError:
            self.spool_full = True


def _is_heartbeat(line: bytes) -> bool:
    if b'"heartbeat"' not in line[:64]:
        return False
    try:
        Heartbeat.model_validate_json(line)
    except ValidationError:
        return False
    return True
