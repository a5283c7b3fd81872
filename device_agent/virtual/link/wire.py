"""One connection to a device, seen from the device: exact reads, plist messages, TLS."""

import asyncio
import plistlib
import ssl
import struct
from typing import Any, Final

from device_agent.floor.property_list import parse_property_list
from device_agent.virtual.link.link import Link, PacedWriter

MAX_PLIST_BYTES: Final = 16 << 20
_HANDSHAKE_TIMEOUT_S: Final = 10.0
_LENGTH: Final = struct.Struct(">I")


def parse_plist(data: bytes) -> dict[str, Any]:
    """A plist dictionary; ValueError for anything else, whatever the parser made of it."""
    message = parse_property_list(data)
    if not isinstance(message, dict):
        raise ValueError("a message that is not a dictionary")
    return message


class Wire:
    """Reader and paced writer of one connection. `label` says what is spoken on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: PacedWriter, link: Link, label: str) -> None:
        self.reader = reader
        self.writer = writer
        self.label = label
        self.owner_pid: int | None = None
        """Of the app that serves this connection: it ends with the app."""
        self.host_id: str | None = None
        """Of the paired host whose session this connection belongs to."""
        self._link = link

    async def receive(self, size_bytes: int) -> bytes:
        """Exactly that many bytes; IncompleteReadError when the client left."""
        data = await self.reader.readexactly(size_bytes)
        await self._link.opened()
        return data

    async def receive_some(self, most_bytes: int) -> bytes:
        """At least one byte, or b"" when the client left."""
        data = await self.reader.read(most_bytes)
        await self._link.opened()
        return data

    async def receive_plist(self) -> dict[str, Any]:
        """One message: a big-endian length and a plist dictionary; ValueError when it is none."""
        (size_bytes,) = _LENGTH.unpack(await self.receive(_LENGTH.size))
        if size_bytes > MAX_PLIST_BYTES:
            raise ValueError(f"a message of {size_bytes} bytes")
        return parse_plist(await self.receive(size_bytes))

    async def send(self, data: bytes) -> None:
        """Returns when the bytes have left the device."""
        self.writer.write(data)
        await self.writer.drain()

    async def send_plist(self, message: dict[str, Any]) -> None:
        """One message, as XML."""
        body = plistlib.dumps(message)
        await self.send(_LENGTH.pack(len(body)) + body)

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Server side of TLS; OSError or ssl.SSLError when the client's handshake fails."""
        await self.writer.start_tls(context, _HANDSHAKE_TIMEOUT_S)

    def hold_reading(self) -> None:
        """Until start_tls: a client's first TLS bytes must not be read as plain ones."""
        pause = getattr(self.writer.transport, "pause_reading", None)
        if pause is not None:
            pause()

    def continue_reading(self) -> None:
        """After hold_reading, when no TLS follows."""
        resume = getattr(self.writer.transport, "resume_reading", None)
        if resume is not None:
            resume()

    def close(self) -> None:
        """An orderly end: the client reads everything that was sent."""
        self.writer.close()

    def abort(self) -> None:
        """The end of a pulled cable."""
        self.writer.abort()
