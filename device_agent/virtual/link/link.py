"""The cable of one device: silence, latency and bandwidth, applied to every byte that leaves it."""

import asyncio
import ssl
import time
from typing import Final, Protocol

_MAX_PIECE_BYTES: Final = 64 * 1024
"""Largest piece that is sent at once over a slow link, so that its pace is smooth."""


class Link:
    """Shared by all connections of a device. bytes_per_s 0 means no limit."""

    def __init__(self) -> None:
        self.latency_s = 0.0
        self.bytes_per_s = 0
        self._open = asyncio.Event()
        self._open.set()
        self._free_at_s = 0.0

    @property
    def is_free(self) -> bool:
        """Whether bytes pass without any delay."""
        return self._open.is_set() and not self.latency_s and not self.bytes_per_s

    def stall(self) -> None:
        """From now on nothing passes."""
        self._open.clear()

    def resume(self) -> None:
        """What was held back passes."""
        self._open.set()

    async def opened(self) -> None:
        """Returns when the link is not stalled."""
        await self._open.wait()

    async def pass_through(self, size_bytes: int) -> None:
        """Returns when `size_bytes` have passed: after silence, latency and the bandwidth's share."""
        await self._open.wait()
        delay_s = self.latency_s
        if self.bytes_per_s:
            now_s = time.monotonic()
            start_s = max(now_s, self._free_at_s)
            self._free_at_s = start_s + size_bytes / self.bytes_per_s
            delay_s += self._free_at_s - now_s
        if delay_s > 0:
            await asyncio.sleep(delay_s)
            await self._open.wait()


class Abortable(Protocol):
    """The part of a transport that ends a connection at once."""

    def abort(self) -> None:
        """Nothing more is sent or received."""
        ...


class ByteSink(Protocol):
    """What is used of a StreamWriter; a connection inside a tunnel has the same."""

    @property
    def transport(self) -> Abortable: ...

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...

    def is_closing(self) -> bool: ...

    async def wait_closed(self) -> None: ...


class PacedWriter:
    """A StreamWriter whose bytes pass through a link; what is held back keeps its order."""

    def __init__(self, writer: ByteSink, link: Link) -> None:
        self._writer = writer
        self._link = link
        self._held = bytearray()
        self._flush: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def transport(self) -> Abortable:
        """That of the connection itself."""
        return self._writer.transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sent at once over a free link, else held and sent in its turn."""
        if self._closing:
            return
        if self._flush is None and self._link.is_free:
            self._writer.write(bytes(data))
            return
        self._held += data
        if self._flush is None:
            self._flush = asyncio.create_task(self._flush_held())

    async def drain(self) -> None:
        """Returns when everything written has passed the link; ConnectionError when the peer is gone."""
        while self._flush is not None:
            await asyncio.wait((self._flush,))
        await self._writer.drain()

    async def start_tls(self, context: ssl.SSLContext, handshake_timeout_s: float) -> None:
        """Server side of TLS from here on."""
        if not isinstance(self._writer, asyncio.StreamWriter):
            raise TypeError("nothing is encrypted inside a tunnel")
        await self._writer.start_tls(context, ssl_handshake_timeout=handshake_timeout_s)

    def close(self) -> None:
        """Ends the connection, after what was held back."""
        if self._closing:
            return
        self._closing = True
        if self._flush is None:
            self._writer.close()
        else:
            self._flush.add_done_callback(lambda _: self._writer.close())

    def abort(self) -> None:
        """Ends the connection at once; what was held back is lost, as with a pulled cable."""
        self._closing = True
        self._held.clear()
        if self._flush is not None:
            self._flush.cancel()
        self._writer.transport.abort()

    def is_closing(self) -> bool:
        """Whether close or abort was called, or the peer is gone."""
        return self._closing or self._writer.is_closing()

    async def wait_closed(self) -> None:
        """Returns when the connection is closed."""
        await self._writer.wait_closed()

    def get_extra_info(self, name: str, default: object = None) -> object:
        ask = getattr(self._writer, "get_extra_info", None)
        return default if ask is None else ask(name, default)

    async def _flush_held(self) -> None:
        try:
            while self._held and not self._writer.is_closing():
                piece = bytes(self._held[:_MAX_PIECE_BYTES])
                await self._link.pass_through(len(piece))
                del self._held[: len(piece)]
                self._writer.write(piece)
                await self._writer.drain()
        except ConnectionError:
            # The reader left: the handler of the connection sees it at its next drain.
            self._held.clear()
        finally:
            self._flush = None
