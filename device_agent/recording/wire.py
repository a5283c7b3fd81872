"""What bytes between host and usbmuxd are: usbmux frames, lockdown frames, TLS, or others. Sans-I/O."""

import struct
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from device_agent.floor.property_list import PropertyListError, parse_property_list
from device_agent.recording.transcript import PlistForm, Sender

MAX_FRAME_BYTES: Final = 8 << 20
_MUX_HEADER: Final = struct.Struct("<IIII")
_MUX_VERSION: Final = 1
_MAX_CONNECTING: Final = 64
"""usbmuxd answers one by one: whoever asks for more at once is not followed into a port."""
_SNIFF_BYTES: Final = 12
_TLS_HANDSHAKE: Final = b"\x16\x03"
_TLS_HEADER_BYTES: Final = 5


class Stage(Enum):
    """How the bytes of a connection are to be read from here on."""

    MUX = auto()
    UNKNOWN = auto()
    PLIST = auto()
    TLS = auto()
    RAW = auto()


@dataclass(frozen=True, slots=True)
class Message:
    """A property list that passed; mux: version, message and tag where it came in a usbmux frame."""

    content: Any
    form: PlistForm
    size_bytes: int
    mux: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes without a frame that is known here."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Sealed:
    """Bytes of TLS: their number and the types of the records that begin in them."""

    size_bytes: int
    records: tuple[int, ...]


Piece = Message | Chunk | Sealed


@dataclass(slots=True)
class Conversation:
    """One connection. Feed it what passes, in order; it never fails: what it does not know is a Chunk.

    port: on the device, once a Connect was answered; None for a conversation with usbmuxd itself.
    """

    stage: Stage = Stage.MUX
    port: int | None = None
    _open: dict[Sender, bytes] = field(default_factory=lambda: {"host": b"", "device": b""})
    _connecting: dict[int, int] = field(default_factory=dict)
    _tls_left: dict[Sender, int] = field(default_factory=lambda: {"host": 0, "device": 0})
    _tls_head: dict[Sender, bytes] = field(default_factory=lambda: {"host": b"", "device": b""})

    def feed(self, sender: Sender, data: bytes) -> list[Piece]:
        """What became whole by these bytes."""
        self._open[sender] += data
        pieces: list[Piece] = []
        while self._open[sender]:
            piece = self._next(sender)
            if piece is None:
                break
            pieces.append(piece)
        return pieces

    def close(self) -> list[tuple[Sender, Piece]]:
        """What was never whole."""
        return [(sender, self._rest(sender)) for sender, data in self._open.items() if data]

    def _rest(self, sender: Sender) -> Piece:
        data, self._open[sender] = self._open[sender], b""
        return self._sealed(sender, data) if self.stage is Stage.TLS else Chunk(data)

    def _next(self, sender: Sender) -> Piece | None:
        if self.stage is Stage.MUX:
            return self._mux_frame(sender)
        if self.stage is Stage.UNKNOWN and not self._sniff(sender):
            return None
        if self.stage is Stage.PLIST:
            return self._plist_frame(sender)
        return self._rest(sender)

    def _sniff(self, sender: Sender) -> bool:
        data = self._open[sender]
        if data.startswith(_TLS_HANDSHAKE):
            self.stage = Stage.TLS
        elif len(data) >= _SNIFF_BYTES:
            self.stage = Stage.PLIST if _form(data[4:]) is not None else Stage.RAW
        elif not _may_become_plist(data):
            self.stage = Stage.RAW
        return self.stage is not Stage.UNKNOWN

    def _plist_frame(self, sender: Sender) -> Piece | None:
        data = self._open[sender]
        if data.startswith(_TLS_HANDSHAKE):
            self.stage = Stage.TLS
            return self._rest(sender)
        if len(data) < _SNIFF_BYTES:
            return None
        size = int.from_bytes(data[:4], "big")
        if size > MAX_FRAME_BYTES or _form(data[4:]) is None:
            self.stage = Stage.RAW
            return self._rest(sender)
        if len(data) < 4 + size:
            return None
        return self._take(sender, 4, size) or self._rest(sender)

    def _mux_frame(self, sender: Sender) -> Piece | None:
        data = self._open[sender]
        if len(data) < _MUX_HEADER.size:
            return None
        size, version, message, tag = _MUX_HEADER.unpack_from(data)
        if version != _MUX_VERSION or not _MUX_HEADER.size <= size <= MAX_FRAME_BYTES:
            self.stage = Stage.RAW
            return self._rest(sender)
        if len(data) < size:
            return None
        piece = self._take(sender, _MUX_HEADER.size, size - _MUX_HEADER.size)
        if piece is None:
            self.stage = Stage.RAW
            return self._rest(sender)
        self._follow(sender, piece.content, tag)
        return Message(piece.content, piece.form, piece.size_bytes, (version, message, tag))

    def _take(self, sender: Sender, head: int, size: int) -> Message | None:
        """The property list behind `head` bytes, taken out; None when it is none."""
        data = self._open[sender]
        packed = data[head : head + size]
        form = _form(packed)
        if form is None:
            return None
        try:
            content = parse_property_list(packed)
        except PropertyListError:
            self.stage = Stage.RAW
            return None
        self._open[sender] = data[head + size :]
        return Message(content, form, head + size)

    def _follow(self, sender: Sender, content: Any, tag: int) -> None:
        """A Connect that is answered by 0 turns the connection into one with a port of the device."""
        if not isinstance(content, dict):
            return
        port = content.get("PortNumber")
        if sender == "host" and content.get("MessageType") == "Connect" and isinstance(port, int):
            if len(self._connecting) >= _MAX_CONNECTING:
                self._connecting.clear()
            # usbmux carries the port in network order inside a little-endian number.
            self._connecting[tag] = ((port & 0xFF) << 8) | ((port >> 8) & 0xFF)
        elif sender == "device" and tag in self._connecting and content.get("Number") == 0:
            self.port = self._connecting.pop(tag)
            self.stage = Stage.UNKNOWN

    def _sealed(self, sender: Sender, data: bytes) -> Sealed:
        """Record headers are in the clear; how many bytes of a record are still to come is kept."""
        types: list[int] = []
        seen = self._tls_head[sender] + data
        place = self._tls_left[sender]
        while place + _TLS_HEADER_BYTES <= len(seen):
            types.append(seen[place])
            place += _TLS_HEADER_BYTES + int.from_bytes(seen[place + 3 : place + 5], "big")
        self._tls_head[sender] = seen[place:]
        self._tls_left[sender] = max(0, place - len(seen))
        return Sealed(len(data), tuple(types))


def _form(packed: bytes) -> PlistForm | None:
    if packed.startswith(b"bplist00"):
        return "binary"
    return "xml" if packed.startswith(b"<?xml") or packed.startswith(b"<plist") else None


def _may_become_plist(data: bytes) -> bool:
    """Whether a longer one may be a frame of four bytes of length and a property list."""
    if len(data) < 4:
        return data[:1] in {b"\x00", b"\x16"}
    tail = data[4:]
    return data[0] == 0 and (b"bplist00".startswith(tail) or b"<?xml ver"[: len(tail)] == tail)
