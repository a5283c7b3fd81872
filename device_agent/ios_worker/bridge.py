"""The app's port as a Unix socket of this host: each connection here becomes one through usbmux."""

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from pymobiledevice3.usbmux import select_device

from device_agent.ios_worker.faults import WorkerError
from device_agent.ios_worker.files import Progress
from device_agent.ios_worker.protocol import Bridge, Nothing, WorkerErrorKind

_CONNECT_DEADLINE_S: Final = 5.0
_CHUNK_BYTES: Final = 64 * 1024


class AppBridge:
    """At most one port at a time. A port that is refused, or a cable that is gone, ends the connection."""

    def __init__(self, udid: str) -> None:
        self._udid = udid
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._links: set[asyncio.Task[None]] = set()

    async def bridge(self, bridge: Bridge, progress: Progress) -> Nothing:
        """Listens when this returns; the app need not listen yet."""
        await self.stop()
        path = Path(bridge.socket_path)
        path.unlink(missing_ok=True)

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = asyncio.create_task(self._link(bridge.port, reader, writer))
            self._links.add(link)
            link.add_done_callback(self._links.discard)

        self._server = await asyncio.start_unix_server(accept, path)
        self._path = path
        return Nothing()

    async def stop(self) -> None:
        """Close the socket and every connection."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for link in list(self._links):
            link.cancel()
        if self._links:
            await asyncio.wait(list(self._links), timeout=5.0)
        path, self._path = self._path, None
        if path is not None:
            path.unlink(missing_ok=True)

    async def _link(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_CONNECT_DEADLINE_S):
                far_reader, far_writer = await self._connect(port)
        except Exception:
            # Refused, gone or broken: whoever connected sees the end of it and tries again.
            await _end(writer)
            return
        ways = [
            asyncio.create_task(_pump(reader, far_writer)),
            asyncio.create_task(_pump(far_reader, writer)),
        ]
        try:
            # Either end closes the whole: the stream is one conversation, not two directions.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await _end(writer)
            await _end(far_writer)

    async def _connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        device = await select_device(self._udid, connection_type="USB")
        if device is None:
            raise WorkerError(WorkerErrorKind.DISCONNECTED, "the device is not attached")
        return await asyncio.open_connection(sock=await device.connect(port))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()
