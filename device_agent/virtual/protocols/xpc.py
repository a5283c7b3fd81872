"""The device's side of RemoteXPC, on pymobiledevice3's codec: the other module here that imports it.

Frames are HTTP/2 and are read and written here; only the messages in them are the codec's.
"""

import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pymobiledevice3.remote.xpc_message import (
    XpcFlags,
    XpcInt64Type,
    XpcUInt64Type,
    XpcWrapper,
    create_xpc_wrapper,
    decode_xpc_object,
)

from device_agent.virtual.link.wire import Wire

__all__ = ["Message", "serve_xpc", "signed", "unsigned"]

Message = dict[str, Any]
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _SETTINGS, _PING, _WINDOW_UPDATE = 0x0, 0x4, 0x6, 0x8
_ACK: Final = 0x1
_CONCURRENT_STREAMS, _INITIAL_WINDOW_SIZE = 0x3, 0x4
_MAX_STREAMS: Final = 100
_MAX_FRAME_BYTES: Final = 16384
_MAX_MESSAGE_BYTES: Final = 8 << 20
_WINDOW_BYTES: Final = 1 << 20
_WRAPPER_HEADER_BYTES: Final = 24
_ROOT_STREAM: Final = 1


def unsigned(value: int) -> Any:
    """An unsigned number of XPC; plain integers have no type there."""
    return XpcUInt64Type(value)


def signed(value: int) -> Any:
    """A signed number of XPC."""
    return XpcInt64Type(value)


async def serve_xpc(wire: Wire, answer: Callable[[Message], Awaitable[Message | None]]) -> None:
    """One connection until the client leaves; `answer` gives the reply to a message, or none."""
    if await wire.receive(len(_PREFACE)) != _PREFACE:
        raise ValueError("no HTTP/2")
    settings = struct.pack(">HIHI", _CONCURRENT_STREAMS, _MAX_STREAMS, _INITIAL_WINDOW_SIZE, _WINDOW_BYTES)
    await wire.send(_frame(_SETTINGS, 0, settings) + _frame(_WINDOW_UPDATE, 0, struct.pack(">I", 1 << 24)))
    streams: dict[int, bytearray] = {}
    while True:
        kind, flags, stream, body = await _receive_frame(wire)
        if kind == _PING and not flags & _ACK:
            await wire.send(_frame(_PING, 0, body, flags=_ACK))
        if kind == _DATA:
            if stream not in streams and len(streams) >= _MAX_STREAMS:
                raise ValueError(f"more than {_MAX_STREAMS} streams")
            buffer = streams.setdefault(stream, bytearray())
            buffer += body
            await _give_back_window(wire, stream, len(body))
            for message, number in _messages(buffer):
                reply = await answer(message)
                if reply is not None:
                    await _send(wire, reply, number)


async def _receive_frame(wire: Wire) -> tuple[int, int, int, bytes]:
    head = await wire.receive(9)
    size_bytes = int.from_bytes(head[:3], "big")
    kind, flags, stream = struct.unpack(">BBI", head[3:])
    return kind, flags, stream & 0x7FFF_FFFF, await wire.receive(size_bytes)


async def _give_back_window(wire: Wire, stream: int, size_bytes: int) -> None:
    if size_bytes:
        increment = struct.pack(">I", size_bytes)
        await wire.send(_frame(_WINDOW_UPDATE, 0, increment) + _frame(_WINDOW_UPDATE, stream, increment))


def _messages(buffer: bytearray) -> list[tuple[Message, int]]:
    """Takes whole messages with content out of the buffer of one stream."""
    found = []
    while len(buffer) >= _WRAPPER_HEADER_BYTES:
        body_bytes, number = struct.unpack_from("<QQ", buffer, 8)
        if body_bytes > _MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {body_bytes} bytes")
        whole_bytes = _WRAPPER_HEADER_BYTES + body_bytes
        if len(buffer) < whole_bytes:
            break
        wrapper = XpcWrapper.parse(bytes(buffer[:whole_bytes]))
        del buffer[:whole_bytes]
        if wrapper.payload is not None and wrapper.payload.data:
            message = decode_xpc_object(wrapper.payload)
            if isinstance(message, dict):
                found.append((message, number))
    return found


async def _send(wire: Wire, message: Message, number: int) -> None:
    wrapper = XpcWrapper.parse(create_xpc_wrapper(message, message_id=number))
    wrapper.flags |= XpcFlags.REPLY
    data = wrapper.build()
    for start in range(0, len(data), _MAX_FRAME_BYTES):
        await wire.send(_frame(_DATA, _ROOT_STREAM, data[start : start + _MAX_FRAME_BYTES]))


def _frame(kind: int, stream: int, body: bytes, flags: int = 0) -> bytes:
    return len(body).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + body
