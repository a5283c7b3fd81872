"""Apple File Conduit, the device's side: packets in, packets out. What a packet does is in afc_session.py."""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from device_agent.virtual.link.wire import Wire
from device_agent.virtual.protocols.afc_session import AfcRefusal, AfcResult, AfcSession, AfcStatus

_MAGIC: Final = b"CFA6LPAA"
_HEADER: Final = struct.Struct("<8sQQQQ")
_MAX_PACKET_BYTES: Final = 128 << 20
_U64: Final = struct.Struct("<Q")


class AfcOperation(IntEnum):
    """Numbers of the protocol; those of answers are the first ones."""

    STATUS = 0x01
    DATA = 0x02
    READ_DIR = 0x03
    TRUNCATE = 0x07
    REMOVE_PATH = 0x08
    MAKE_DIR = 0x09
    GET_FILE_INFO = 0x0A
    GET_DEVICE_INFO = 0x0B
    FILE_OPEN = 0x0D
    FILE_OPEN_RESULT = 0x0E
    FILE_READ = 0x0F
    FILE_WRITE = 0x10
    FILE_SEEK = 0x11
    FILE_TELL = 0x12
    FILE_TELL_RESULT = 0x13
    FILE_CLOSE = 0x14
    FILE_SET_SIZE = 0x15
    GET_CONNECTION_INFO = 0x16
    SET_CONNECTION_OPTIONS = 0x17
    RENAME_PATH = 0x18
    SET_FS_BLOCK_SIZE = 0x19
    SET_SOCKET_BLOCK_SIZE = 0x1A
    FILE_LOCK = 0x1B
    MAKE_LINK = 0x1C
    SET_FILE_TIME = 0x1E
    REMOVE_PATH_AND_CONTENTS = 0x22


_ACCEPTED: Final = frozenset(
    {AfcOperation.SET_FS_BLOCK_SIZE, AfcOperation.SET_SOCKET_BLOCK_SIZE}
    | {AfcOperation.SET_CONNECTION_OPTIONS, AfcOperation.GET_CONNECTION_INFO}
)


@dataclass(frozen=True, slots=True)
class Packet:
    """One request: number, operation, what follows the header."""

    number: int
    operation: int
    arguments: bytes
    payload: bytes


async def serve_afc(wire: Wire, session: AfcSession) -> None:
    """Answers packets until the client leaves; closes its files then."""
    try:
        while True:
            packet = await _receive(wire)
            try:
                result = await _carry_out(session, packet)
            except AfcRefusal as refusal:
                result = AfcResult(status=refusal.status)
            except OSError as error:
                result = AfcResult(status=AfcStatus.of(error))
            except (ValueError, struct.error):
                result = AfcResult(status=AfcStatus.INVALID_ARGUMENT)
            await _send(wire, packet.number, result)
    finally:
        session.close()


async def _receive(wire: Wire) -> Packet:
    magic, whole_bytes, this_bytes, number, operation = _HEADER.unpack(await wire.receive(_HEADER.size))
    if magic != _MAGIC or not _HEADER.size <= this_bytes <= whole_bytes <= _MAX_PACKET_BYTES:
        raise ValueError("no AFC packet")
    arguments = await wire.receive(this_bytes - _HEADER.size)
    payload = await wire.receive(whole_bytes - this_bytes)
    return Packet(number, operation, arguments, payload)


async def _send(wire: Wire, number: int, result: AfcResult) -> None:
    if result.handle is not None:
        operation, body, data = AfcOperation.FILE_OPEN_RESULT, _U64.pack(result.handle), b""
    elif result.position is not None:
        operation, body, data = AfcOperation.FILE_TELL_RESULT, _U64.pack(result.position), b""
    elif result.data is not None:
        operation, body, data = AfcOperation.DATA, b"", result.data
    else:
        operation, body, data = AfcOperation.STATUS, _U64.pack(result.status), b""
    this_bytes = _HEADER.size + len(body)
    await wire.send(_HEADER.pack(_MAGIC, this_bytes + len(data), this_bytes, number, operation) + body + data)


async def _carry_out(session: AfcSession, packet: Packet) -> AfcResult:
    """Reads the arguments of one operation and lets the session do it."""
    arguments = packet.arguments
    match packet.operation:
        case AfcOperation.FILE_WRITE:
            return await session.write(_U64.unpack_from(arguments)[0], packet.payload)
        case AfcOperation.FILE_READ:
            handle, size_bytes = struct.unpack_from("<QQ", arguments)
            return session.read(handle, size_bytes)
        case AfcOperation.FILE_SEEK:
            handle, whence, offset = struct.unpack_from("<QQq", arguments)
            return session.seek(handle, whence, offset)
        case AfcOperation.FILE_TELL:
            return session.tell(_U64.unpack_from(arguments)[0])
        case AfcOperation.FILE_CLOSE:
            return session.close_file(_U64.unpack_from(arguments)[0])
        case AfcOperation.FILE_SET_SIZE:
            return session.set_size(*struct.unpack_from("<QQ", arguments))
        case AfcOperation.FILE_LOCK:
            return session.lock(_U64.unpack_from(arguments)[0])
        case _:
            return _carry_out_on_paths(session, packet)


def _carry_out_on_paths(session: AfcSession, packet: Packet) -> AfcResult:
    arguments = packet.arguments
    match packet.operation:
        case AfcOperation.READ_DIR:
            return session.read_folder(_text(arguments))
        case AfcOperation.GET_FILE_INFO:
            return session.file_info(_text(arguments))
        case AfcOperation.GET_DEVICE_INFO:
            return session.device_info()
        case AfcOperation.MAKE_DIR:
            return session.make_folder(_text(arguments))
        case AfcOperation.REMOVE_PATH:
            return session.remove(_text(arguments))
        case AfcOperation.REMOVE_PATH_AND_CONTENTS:
            return session.remove_all(_text(arguments))
        case AfcOperation.RENAME_PATH:
            return session.rename(*_texts(arguments))
        case _:
            return _carry_out_with_number(session, packet)


def _carry_out_with_number(session: AfcSession, packet: Packet) -> AfcResult:
    """Operations whose path follows a number; and those that change nothing here."""
    if packet.operation in _ACCEPTED:
        return AfcResult()
    (number,) = _U64.unpack_from(packet.arguments)
    rest = packet.arguments[_U64.size :]
    match packet.operation:
        case AfcOperation.FILE_OPEN:
            return session.open(number, _text(rest))
        case AfcOperation.TRUNCATE:
            return session.truncate(_text(rest), number)
        case AfcOperation.SET_FILE_TIME:
            return session.set_time(_text(rest), number)
        case AfcOperation.MAKE_LINK:
            return session.make_link(number, *_texts(rest))
        case _:
            return AfcResult(status=AfcStatus.OPERATION_NOT_SUPPORTED)


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode()


def _texts(data: bytes) -> tuple[str, str]:
    first, second, *_ = data.split(b"\0")
    return first.decode(), second.decode()
