"""A proxy in front of usbmuxd that records: bytes pass unchanged and first, what they were is noted after."""

import asyncio
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from device_agent.floor.errors import AgentError
from device_agent.recording.recorder import Capture, Recorder
from device_agent.recording.transcript import Sender

_log = structlog.get_logger(__name__)

_READ_BYTES: Final = 64 * 1024


class ListenError(AgentError):
    """The proxy's own socket could not be made; the message says why."""

    kind = "listen-failed"


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """upstream: a path, or host:port as pymobiledevice3 writes it. Every wait for a side has its end."""

    listen: Path
    upstream: str
    connect_s: float = 5.0
    drain_s: float = 60.0
    close_s: float = 2.0
    max_connections: int = 256


class RecordingProxy:
    """Serves until told to stop; `async with` it."""

    def __init__(self, settings: ProxySettings, recorder: Recorder) -> None:
        self._settings = settings
        self._recorder = recorder
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "RecordingProxy":
        """Listen, for this user only; ListenError. A socket that nobody serves any more is replaced."""
        path = self._settings.listen
        if path.is_socket():
            if await _is_served(path):
                raise ListenError(f"somebody serves {path} already")
            path.unlink()
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._accept, path, limit=_READ_BYTES)
        except OSError as error:
            raise ListenError(f"{path}: {error.strerror or error}") from error
        finally:
            os.umask(before)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection; what they held is in the recording when this returns."""
        if self._server is not None:
            self._server.close()
        open_now = dict(self._open)
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
        # A task that was cancelled before its first step has closed nothing.
        for writer in open_now.values():
            await self._close(writer)
        self._settings.listen.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        work = self._handle if len(self._open) < self._settings.max_connections else self._refuse
        task = asyncio.get_running_loop().create_task(work(reader, writer))
        self._open[task] = writer
        task.add_done_callback(lambda done: self._open.pop(done, None))

    async def _refuse(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._recorder.counts.refused += 1
        await self._close(writer)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        capture = self._recorder.open()
        detail = "the recording ended"
        try:
            detail = await self._serve(capture, reader, writer)
        finally:
            self._recorder.close(capture, detail)
            writer.close()
        await self._close(writer)

    async def _serve(
        self, capture: Capture, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> str:
        """Pass bytes both ways until both sides are done; how it ended."""
        try:
            async with asyncio.timeout(self._settings.connect_s):
                there = await _connect(self._settings.upstream)
        except (OSError, TimeoutError) as error:
            _log.warning("upstream_unreachable", upstream=self._settings.upstream, detail=str(error))
            return f"upstream could not be reached: {type(error).__name__}"
        up_reader, up_writer = there
        try:
            sides = await asyncio.gather(
                self._pass_on(capture, "host", reader, up_writer),
                self._pass_on(capture, "device", up_reader, writer),
            )
        finally:
            await self._close(up_writer)
        return "; ".join(side for side in sides if side)

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._settings.close_s):
                await writer.wait_closed()

    async def _pass_on(
        self, capture: Capture, sender: Sender, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> str:
        """Forward one side until it ends, then end the other's input; "" for a clean end."""
        try:
            while data := await reader.read(_READ_BYTES):
                writer.write(data)
                self._recorder.record(capture, sender, data)
                async with asyncio.timeout(self._settings.drain_s):
                    await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except (ConnectionError, BrokenPipeError) as error:
            writer.close()
            return f"{sender}: {type(error).__name__}"
        except TimeoutError:
            writer.transport.abort()
            return f"{sender}: the other side took nothing for {self._settings.drain_s:.0f} s"
        return ""


async def _connect(upstream: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, colon, port = upstream.rpartition(":")
    if colon and port.isdecimal():
        return await asyncio.open_connection(host, int(port), limit=_READ_BYTES)
    return await asyncio.open_unix_connection(upstream, limit=_READ_BYTES)


async def _is_served(path: Path) -> bool:
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_unix_connection(path)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
