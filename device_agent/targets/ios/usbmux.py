"""Which devices usbmuxd has, followed for ever: the plist protocol, version 1, only its Listen.

A daemon that is not there means that no device is there: stock usbmuxd ends when the last device leaves.
"""

import asyncio
import plistlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from contract.ids import DeviceId
from device_agent.floor.property_list import PropertyListError, parse_property_list

_log = structlog.get_logger(__name__)

_HEADER: Final = struct.Struct("<IIII")
_PLIST_VERSION: Final = 1
_PLIST_MESSAGE: Final = 8
_MAX_MESSAGE_BYTES: Final = 1 << 20
_MAX_DEVICES: Final = 256
_CONNECT_DEADLINE_S: Final = 5.0
_RETRY_S: Final = 1.0
# Chip id and ECID, which some daemons send without the dash between them.
_DASHLESS_CHARS: Final = 24
_CHIP_ID_CHARS: Final = 8


class MuxProtocolError(Exception):
    """The daemon said something that is not a usbmux message; the connection cannot be used any more."""


@dataclass(frozen=True, slots=True)
class MuxEntry:
    """One line of the daemon's list. mux_id: void as soon as the device is plugged anew."""

    mux_id: int
    udid: DeviceId
    connection: str
    """USB or Network."""


def framed(message: dict[str, Any], tag: int = 1) -> bytes:
    """A message as it travels."""
    body = plistlib.dumps(message)
    return _HEADER.pack(_HEADER.size + len(body), _PLIST_VERSION, _PLIST_MESSAGE, tag) + body


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next message; MuxProtocolError, or IncompleteReadError when the daemon has gone."""
    length, version, kind, _tag = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if version != _PLIST_VERSION or kind != _PLIST_MESSAGE:
        raise MuxProtocolError(f"version {version}, message {kind}")
    if not _HEADER.size <= length <= _MAX_MESSAGE_BYTES:
        raise MuxProtocolError(f"a message of {length} bytes")
    body = await reader.readexactly(length - _HEADER.size)
    try:
        message = parse_property_list(body)
    except PropertyListError as error:
        raise MuxProtocolError(str(error)) from error
    if not isinstance(message, dict):
        raise MuxProtocolError("the property list is not a dictionary")
    return message


class MuxList:
    """What a daemon has told so far; pure."""

    def __init__(self) -> None:
        self._entries: dict[int, MuxEntry] = {}
        self._trusted = 0

    @property
    def entries(self) -> frozenset[MuxEntry]:
        return frozenset(self._entries.values())

    @property
    def trust_changes(self) -> int:
        """How often the daemon said that a device was paired: worth a new look at it."""
        return self._trusted

    def take(self, message: dict[str, Any]) -> bool:
        """Whether it changed anything; MuxProtocolError for an attached device without number or serial."""
        match message.get("MessageType"):
            case "Attached":
                entry = _entry(message)
                if len(self._entries) >= _MAX_DEVICES:
                    raise MuxProtocolError(f"more than {_MAX_DEVICES} devices")
                self._entries[entry.mux_id] = entry
            case "Detached":
                return self._entries.pop(int(message.get("DeviceID", 0)), None) is not None
            case "Paired":
                self._trusted += 1
            case _:
                return False
        return True


class MuxWatch:
    """Tells every change until cancelled. `on_change` gets the list; it must not block."""

    def __init__(self, address: str, on_change: Callable[[MuxList], None]) -> None:
        """address: a path, or HOST:PORT as libusbmuxd writes it."""
        self._address = address.removeprefix("UNIX:")
        self._on_change = on_change

    async def run(self) -> None:
        """For ever: a daemon that ends takes its devices along, and is asked again."""
        while True:
            try:
                await self._listen()
            except (OSError, TimeoutError, EOFError):
                # Normal while nothing is plugged in.
                pass
            except MuxProtocolError as error:
                _log.warning("usbmux_unreadable", address=self._address, detail=str(error))
            self._on_change(MuxList())
            await asyncio.sleep(_RETRY_S)

    async def _listen(self) -> None:
        async with asyncio.timeout(_CONNECT_DEADLINE_S):
            reader, writer = await self._connect()
        try:
            found = MuxList()
            writer.write(framed(_LISTEN))
            async with asyncio.timeout(_CONNECT_DEADLINE_S):
                await writer.drain()
                answer = await read_message(reader)
            if answer.get("Number") != 0:
                raise MuxProtocolError(f"Listen was refused: {answer.get('Number')}")
            self._on_change(found)
            while True:
                if found.take(await read_message(reader)):
                    self._on_change(found)
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, colon, port = self._address.rpartition(":")
        if colon and port.isdigit():
            return await asyncio.open_connection(host.strip("[]"), int(port))
        return await asyncio.open_unix_connection(self._address)


_LISTEN: Final = {
    "MessageType": "Listen",
    "ClientVersionString": "dynofarm",
    "ProgName": "dynofarm",
    "kLibUSBMuxVersion": 3,
}


def _entry(message: dict[str, Any]) -> MuxEntry:
    properties = message.get("Properties")
    serial = properties.get("SerialNumber") if isinstance(properties, dict) else None
    mux_id = message.get("DeviceID")
    if not isinstance(serial, str) or not serial or not isinstance(mux_id, int):
        raise MuxProtocolError("a device without number or serial")
    assert isinstance(properties, dict)
    return MuxEntry(mux_id, canonical_udid(serial), str(properties.get("ConnectionType", "USB")))


def canonical_udid(serial: str) -> DeviceId:
    """With the dash, as the device itself writes it."""
    if len(serial) == _DASHLESS_CHARS and "-" not in serial:
        return f"{serial[:_CHIP_ID_CHARS]}-{serial[_CHIP_ID_CHARS:]}"
    return serial
