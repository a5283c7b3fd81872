"""The usbmuxd side: a Unix socket that speaks usbmuxd's plist protocol (version 1) for all devices."""

import asyncio
import itertools
import plistlib
import socket
import struct
import uuid
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Literal

from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.device.pair_records import PairRecords
from device_agent.virtual.link.link import PacedWriter
from device_agent.virtual.link.wire import Wire, parse_plist

ConnectionKind = Literal["USB", "Network"]
_HEADER: Final = struct.Struct("<IIII")
_PLIST_VERSION: Final = 1
_PLIST_MESSAGE: Final = 8
_MAX_REQUEST_BYTES: Final = 4 << 20
_MAX_UNREAD_BYTES: Final = 1 << 20
"""A listener that leaves more unread is ended: nobody else's notices wait for it, and none pile up."""
_USB_2_BITS_PER_S: Final = 480_000_000
_IPHONE_PRODUCT_ID: Final = 0x12A8
_NOTICE_GAP_S: Final = 0.1
"""Between the end of a device's sockets and the notice of it: usbmuxd tells them in either order."""


class MuxResult(IntEnum):
    """Numbers of a Result message."""

    OK = 0
    BAD_COMMAND = 1
    BAD_DEVICE = 2
    CONNECTION_REFUSED = 3
    BAD_VERSION = 6


@dataclass(frozen=True, slots=True)
class MuxEntry:
    """One entry of the device list: a number that is never used again."""

    number: int
    device: VirtualDevice
    kind: ConnectionKind

    def message(self) -> dict[str, Any]:
        """The Attached message."""
        properties: dict[str, Any] = {
            "ConnectionType": self.kind,
            "DeviceID": self.number,
            "SerialNumber": self.device.udid,
        }
        if self.kind == "USB":
            properties |= {
                "ConnectionSpeed": _USB_2_BITS_PER_S,
                "LocationID": 0x1410_0000 + self.number,
                "ProductID": _IPHONE_PRODUCT_ID,
            }
        else:
            mac = self.device.record.wifi_address
            properties |= {
                "EscapedFullServiceName": f"{mac}@fe80::1._apple-mobdev2._tcp.local.",
                "InterfaceIndex": 2,
                # A sockaddr_in6 of a link-local address, as usbmuxd sends it.
                "NetworkAddress": b"\x1c\x1e" + bytes(6) + b"\xfe\x80" + bytes(13) + b"\x01" + bytes(4),
            }
        return {"MessageType": "Attached", "DeviceID": self.number, "Properties": properties}


class Usbmuxd:
    """Clients, entries and forwarded connections. Serves until `close`."""

    def __init__(self, pair_records: PairRecords) -> None:
        self.pair_records = pair_records
        self.buid = str(uuid.uuid4()).upper()
        self._numbers = itertools.count(1)
        self._entries: dict[int, MuxEntry] = {}
        self._listeners: set[asyncio.StreamWriter] = set()
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._forwarded: dict[Wire, int] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, path: Path) -> None:
        """Serves on the Unix socket `path`; OSError when it cannot be bound."""
        self._server = await asyncio.start_unix_server(self._serve_client, path)

    async def close(self) -> None:
        """Ends every connection and every handler."""
        if self._server is not None:
            self._server.close()
        for task, writer in list(self._clients.items()):
            writer.transport.abort()
            task.cancel()
        if self._clients:
            await asyncio.wait(list(self._clients), timeout=5.0)

    @property
    def open_sockets(self) -> int:
        """Clients that are connected, whatever they do."""
        return len(self._clients)

    def entries_of(self, device: VirtualDevice) -> list[MuxEntry]:
        """The entries of a device; none while it is unplugged."""
        return [each for each in self._entries.values() if each.device is device]

    def attach(self, device: VirtualDevice, kind: ConnectionKind = "USB") -> MuxEntry:
        """A new entry with a new number; listeners are told."""
        entry = MuxEntry(next(self._numbers), device, kind)
        self._entries[entry.number] = entry
        self._tell(entry.message())
        return entry

    async def detach(self, entry: MuxEntry, *, notice_first: bool = False) -> None:
        """Pulls the cable: connections end at once, what was in flight is lost; listeners are told."""
        if self._entries.pop(entry.number, None) is None:
            return
        notice = {"MessageType": "Detached", "DeviceID": entry.number}
        if notice_first:
            self._tell(notice)
            await asyncio.sleep(_NOTICE_GAP_S)
            self._abort_forwarded(entry.number)
        else:
            self._abort_forwarded(entry.number)
            await asyncio.sleep(_NOTICE_GAP_S)
            self._tell(notice)

    def _abort_forwarded(self, number: int) -> None:
        for wire, of in list(self._forwarded.items()):
            if of == number:
                wire.abort()

    def _tell(self, message: dict[str, Any]) -> None:
        for writer in list(self._listeners):
            if writer.is_closing():
                self._listeners.discard(writer)
            elif writer.transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
                writer.transport.abort()
            else:
                _write(writer, message, tag=0)

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # asyncio calls this inside a task
        self._clients[task] = writer
        try:
            while await self._answer(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, ValueError, KeyError, TypeError):
            # The client left, or it speaks something else; usbmuxd ends such a connection too.
            pass
        except asyncio.CancelledError:
            # Only `close` cancels; the streams module would report it as an error.
            pass
        finally:
            self._listeners.discard(writer)
            self._clients.pop(task, None)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; False when the connection is used up."""
        size_bytes, version, kind, tag = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        if not _HEADER.size <= size_bytes <= _MAX_REQUEST_BYTES:
            raise ValueError(f"a request of {size_bytes} bytes")
        body = await reader.readexactly(size_bytes - _HEADER.size)
        if version != _PLIST_VERSION or kind != _PLIST_MESSAGE:
            _write(writer, _result(MuxResult.BAD_VERSION), tag)
            return True
        request = parse_plist(body)
        name = str(request.get("MessageType"))
        if name == "Connect":
            return await self._connect(request, reader, writer, tag)
        _write(writer, self._reply(name, request), tag)
        if name == "Listen":
            self._listeners.add(writer)
            for entry in self._entries.values():
                _write(writer, entry.message(), tag=0)
        return True

    def _reply(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        match name:
            case "Listen":
                return _result(MuxResult.OK)
            case "ListDevices":
                return {"DeviceList": [each.message() for each in self._entries.values()]}
            case "ListListeners":
                return {"ListenerList": []}
            case "ReadBUID":
                return {"BUID": self.buid}
            case "ReadPairRecord":
                found = self.pair_records.read(str(request.get("PairRecordID")))
                return _result(MuxResult.BAD_DEVICE) if found is None else {"PairRecordData": found}
            case "SavePairRecord":
                self.pair_records.save(str(request.get("PairRecordID")), bytes(request["PairRecordData"]))
                self._tell({"MessageType": "Paired", "DeviceID": request.get("DeviceID", 0)})
                return _result(MuxResult.OK)
            case "DeletePairRecord":
                self.pair_records.delete(str(request.get("PairRecordID")))
                return _result(MuxResult.OK)
            case _:
                return _result(MuxResult.BAD_COMMAND)

    async def _connect(
        self,
        request: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tag: int,
    ) -> bool:
        entry = self._entries.get(request.get("DeviceID", 0))
        if entry is None:
            _write(writer, _result(MuxResult.BAD_DEVICE), tag)
            return True
        device = entry.device
        port = await device.ports.open(socket.ntohs(int(request.get("PortNumber", 0)) & 0xFFFF))
        if port is None:
            _write(writer, _result(MuxResult.CONNECTION_REFUSED), tag)
            return True
        wire = Wire(reader, PacedWriter(writer, device.link), device.link, port.label)
        # A client's first TLS bytes must not be read before the port's handler has started TLS.
        wire.hold_reading()
        self._forwarded[wire] = entry.number
        try:
            _write(writer, _result(MuxResult.OK), tag)
            await writer.drain()
            await device.serve(port, wire)
        finally:
            self._forwarded.pop(wire, None)
            with suppress(ConnectionError):
                wire.close()
        return False


def _result(number: MuxResult) -> dict[str, Any]:
    return {"MessageType": "Result", "Number": int(number)}


def _write(writer: asyncio.StreamWriter, message: dict[str, Any], tag: int) -> None:
    body = plistlib.dumps(message)
    writer.write(_HEADER.pack(_HEADER.size + len(body), _PLIST_VERSION, _PLIST_MESSAGE, tag) + body)
