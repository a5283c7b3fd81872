"""The device's end of one TCP connection inside a tunnel.

The tunnel itself is a reliable stream, so that nothing is lost or reordered on the way; a timer repeats what
a client's own stack has dropped for want of room.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final, cast

from device_agent.virtual.link.ip_packets import Segment, TcpFlag

_RECEIVE_WINDOW_BYTES: Final = 1 << 20
_READ_BUFFER_BYTES: Final = 256 * 1024
"""Twice as much waits in the reader before the window closes; what was under way by then comes on top."""
_SCALE: Final = 7
_MOD: Final = 1 << 32
_HALF: Final = 1 << 31
_DEFAULT_SEGMENT_BYTES: Final = 1220
_HEADERS_BYTES: Final = 60
_REPEAT_AFTER_S: Final = 0.3
_MAX_REPEATS: Final = 30
_SEND_BUFFER_BYTES: Final = 1 << 20

Emit = Callable[[Segment], None]


class TcpConnection:
    """Made by a client's SYN. `reader` is what the client sends; the rest is the writing side of a stream."""

    def __init__(self, syn: Segment, mtu_bytes: int, emit: Emit) -> None:
        self.port = syn.target_port
        self.client_port = syn.source_port
        self.reader = asyncio.StreamReader(limit=_READ_BUFFER_BYTES)
        self._is_paused = False
        self.ended = asyncio.Event()
        self._emit = emit
        self._segment_bytes = min(syn.max_segment_bytes or _DEFAULT_SEGMENT_BYTES, mtu_bytes - _HEADERS_BYTES)
        self._peer_scale = syn.scale or 0
        self._peer_window = syn.window
        self._acked = secrets.randbits(31)
        self._next = (self._acked + 1) % _MOD
        self._expected = (syn.seq + 1) % _MOD
        self._unacked = bytearray()
        self._unsent = bytearray()
        self._room = asyncio.Event()
        self._is_open = False
        self._wants_end = False
        self._sent_end = False
        self._got_end = False
        self._repeats = 0
        self._timer: asyncio.TimerHandle | None = None
        self._syn_ack = Segment(
            self.port,
            self.client_port,
            self._acked,
            self._expected,
            TcpFlag.SYN | TcpFlag.ACK,
            0xFFFF,
            max_segment_bytes=self._segment_bytes,
            scale=_SCALE if syn.scale is not None else None,
        )
        self._own_scale = _SCALE if syn.scale is not None else 0
        # It only ever pauses and resumes its transport.
        self.reader.set_transport(cast("asyncio.Transport", self))
        emit(self._syn_ack)

    # ---- what a StreamWriter has

    @property
    def transport(self) -> "TcpConnection":
        """Itself: abort ends the connection."""
        return self

    def write(self, data: bytes) -> None:
        if not self.ended.is_set() and not self._wants_end:
            self._unsent += data
            self._pump()

    async def drain(self) -> None:
        """Waits until the client has taken most of it; ConnectionResetError when the connection is over."""
        while len(self._unsent) > _SEND_BUFFER_BYTES and not self.ended.is_set():
            self._room.clear()
            await self._room.wait()
        if self.ended.is_set():
            raise ConnectionResetError("the connection inside the tunnel is over")

    def close(self) -> None:
        """Ends in order, after what was written."""
        self._wants_end = True
        self._pump()

    def is_closing(self) -> bool:
        return self._wants_end or self.ended.is_set()

    async def wait_closed(self) -> None:
        await self.ended.wait()

    def abort(self) -> None:
        """Ends at once; the client is told by a reset."""
        if not self.ended.is_set():
            self._send(TcpFlag.RST | TcpFlag.ACK)
            self.die()

    # ---- what the reader asks of its transport

    def pause_reading(self) -> None:
        """The service is behind: the client is told that there is no room."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """There is room again, and the client is told."""
        self._is_paused = False
        if not self.ended.is_set():
            self._send(TcpFlag.ACK)

    # ---- what the tunnel does

    def receive(self, segment: Segment) -> bool:
        """One segment of the client; True when it completes the connection's opening."""
        if segment.flags & TcpFlag.RST:
            self.die()
            return False
        if segment.flags & TcpFlag.SYN:
            # Our answer was dropped.
            self._emit(self._syn_ack)
            return False
        self._peer_window = segment.window << self._peer_scale
        opened = False
        if segment.flags & TcpFlag.ACK:
            opened = not self._is_open
            self._is_open = True
            self._take_ack(segment.ack)
        self._take_data(segment)
        self._pump()
        if self._sent_end and self._got_end and not self._unacked:
            self.die()
        return opened

    def die(self) -> None:
        """Over, without a word to the client: its reader sees the end."""
        if self.ended.is_set():
            return
        self.ended.set()
        self._room.set()
        if self._timer is not None:
            self._timer.cancel()
        if not self._got_end:
            self.reader.feed_eof()

    def _take_ack(self, ack: int) -> None:
        advance = (ack - self._acked) % _MOD
        if not 0 < advance < _HALF:
            return
        # SYN and FIN count as a byte that is in no buffer.
        del self._unacked[:advance]
        self._acked = ack
        self._repeats = 0
        self._room.set()
        if not self._unacked and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take_data(self, segment: Segment) -> None:
        if not segment.data and not segment.flags & TcpFlag.FIN:
            return
        already = (self._expected - segment.seq) % _MOD
        if already <= len(segment.data) and not self._got_end:
            fresh = segment.data[already:]
            if fresh:
                self.reader.feed_data(fresh)
                self._expected = (self._expected + len(fresh)) % _MOD
            if segment.flags & TcpFlag.FIN:
                self._got_end = True
                self._expected = (self._expected + 1) % _MOD
                self.reader.feed_eof()
        self._send(TcpFlag.ACK)

    def _pump(self) -> None:
        """Sends what the client has room for."""
        if not self._is_open or self.ended.is_set():
            return
        while self._unsent:
            room = min(self._segment_bytes, self._peer_window - len(self._unacked), len(self._unsent))
            if room <= 0:
                break
            piece = bytes(self._unsent[:room])
            del self._unsent[:room]
            self._unacked += piece
            self._send(TcpFlag.ACK | TcpFlag.PSH, piece)
            self._next = (self._next + room) % _MOD
        if len(self._unsent) <= _SEND_BUFFER_BYTES:
            self._room.set()
        if self._wants_end and not self._unsent and not self._sent_end:
            self._send(TcpFlag.FIN | TcpFlag.ACK)
            self._next = (self._next + 1) % _MOD
            self._sent_end = True
        if (self._unacked or self._unsent) and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_REPEAT_AFTER_S, self._repeat)

    def _repeat(self) -> None:
        self._timer = None
        self._repeats += 1
        if self._repeats > _MAX_REPEATS:
            self.abort()
        elif self._unacked:
            self._send(TcpFlag.ACK | TcpFlag.PSH, bytes(self._unacked[: self._segment_bytes]), self._acked)
        self._pump()

    def _send(self, flags: TcpFlag, data: bytes = b"", seq: int | None = None) -> None:
        window = 0 if self._is_paused else min(0xFFFF, _RECEIVE_WINDOW_BYTES >> self._own_scale)
        at = self._next if seq is None else seq
        self._emit(Segment(self.port, self.client_port, at, self._expected, flags, window, data))
