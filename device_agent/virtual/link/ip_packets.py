"""TCP segments in IPv6 packets, as they travel through a device's tunnel."""

import array
import struct
import sys
from dataclasses import dataclass
from enum import IntFlag
from typing import Final

IP_HEADER_BYTES: Final = 40
_TCP_HEADER_BYTES: Final = 20
_VERSION_6: Final = 0x6000_0000
_NEXT_HEADER_TCP: Final = 6
_HOP_LIMIT: Final = 64
_IP: Final = struct.Struct(">IHBB16s16s")
_TCP: Final = struct.Struct(">HHIIBBHHH")
_MAX_SEGMENT_SIZE, _WINDOW_SCALE = 2, 3


class TcpFlag(IntFlag):
    """Bits of a segment's header."""

    FIN = 1
    SYN = 2
    RST = 4
    PSH = 8
    ACK = 16


@dataclass(frozen=True, slots=True)
class Segment:
    """One TCP segment; ports as seen by its sender. max_segment_bytes and scale only travel with SYN."""

    source_port: int
    target_port: int
    seq: int
    ack: int
    flags: TcpFlag
    window: int
    data: bytes = b""
    max_segment_bytes: int | None = None
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class Addresses:
    """Both ends of a tunnel, packed."""

    device: bytes
    client: bytes


def payload_bytes(header: bytes) -> int:
    """How many bytes follow this IPv6 header."""
    return int(_IP.unpack(header)[1])


def read_segment(header: bytes, payload: bytes, addresses: Addresses) -> Segment | None:
    """What a client sent to the device over TCP; None for anything else, and for a broken checksum."""
    _, size_bytes, next_header, _, source, target = _IP.unpack(header)
    if next_header != _NEXT_HEADER_TCP or target != addresses.device or size_bytes < _TCP_HEADER_BYTES:
        return None
    if _checksum(_pseudo_header(source, target, size_bytes) + payload):
        return None
    source_port, target_port, seq, ack, offset, flags, window, _, _ = _TCP.unpack_from(payload)
    data_at = (offset >> 4) * 4
    size, scale = _options(payload[_TCP_HEADER_BYTES:data_at])
    return Segment(
        source_port, target_port, seq, ack, TcpFlag(flags & 0x1F), window, payload[data_at:], size, scale
    )


def write_packet(segment: Segment, addresses: Addresses) -> bytes:
    """The IPv6 packet from the device to the client."""
    options = b""
    if segment.max_segment_bytes is not None:
        options += struct.pack(">BBH", _MAX_SEGMENT_SIZE, 4, segment.max_segment_bytes)
    if segment.scale is not None:
        # One byte of padding brings the options to a multiple of four.
        options += struct.pack(">BBBB", 1, _WINDOW_SCALE, 3, segment.scale)
    size_bytes = _TCP_HEADER_BYTES + len(options) + len(segment.data)

    def tcp(checksum: int) -> bytes:
        return (
            _TCP.pack(
                segment.source_port,
                segment.target_port,
                segment.seq & 0xFFFF_FFFF,
                segment.ack & 0xFFFF_FFFF,
                (_TCP_HEADER_BYTES + len(options)) // 4 << 4,
                segment.flags,
                segment.window,
                checksum,
                0,
            )
            + options
        )

    pseudo = _pseudo_header(addresses.device, addresses.client, size_bytes)
    checksum = _checksum(pseudo + tcp(0) + segment.data)
    header = _IP.pack(
        _VERSION_6, size_bytes, _NEXT_HEADER_TCP, _HOP_LIMIT, addresses.device, addresses.client
    )
    return header + tcp(checksum) + segment.data


def _options(data: bytes) -> tuple[int | None, int | None]:
    """Largest segment and window scale of a SYN."""
    size: int | None = None
    scale: int | None = None
    at = 0
    while at < len(data) and data[at] != 0:
        if data[at] == 1:
            at += 1
            continue
        length = data[at + 1] if at + 1 < len(data) else 0
        if length < 2:
            break
        if data[at] == _MAX_SEGMENT_SIZE and length == 4:
            size = int.from_bytes(data[at + 2 : at + 4], "big")
        elif data[at] == _WINDOW_SCALE and length == 3:
            scale = min(data[at + 2], 14)
        at += length
    return size, scale


def _pseudo_header(source: bytes, target: bytes, size_bytes: int) -> bytes:
    return source + target + struct.pack(">II", size_bytes, _NEXT_HEADER_TCP)


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071), 0 over data that carries a right one."""
    words = array.array("H", data if len(data) % 2 == 0 else data + b"\0")
    if sys.byteorder == "little":
        words.byteswap()
    total = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
