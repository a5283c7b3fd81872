"""Packets and TCP inside a tunnel: what is sent comes out whole, whatever the client's window is."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from device_agent.virtual.link.ip_packets import (
    IP_HEADER_BYTES,
    Addresses,
    Segment,
    TcpFlag,
    payload_bytes,
    read_segment,
    write_packet,
)
from device_agent.virtual.link.tunnel_tcp import TcpConnection

DEVICE, CLIENT = b"\xfd" + bytes(14) + b"\x01", b"\xfd" + bytes(14) + b"\x02"
TO_CLIENT = Addresses(DEVICE, CLIENT)
TO_DEVICE = Addresses(CLIENT, DEVICE)
PORTS = st.integers(1, 65535)
NUMBERS = st.integers(0, 2**32 - 1)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    return Segment(
        draw(PORTS),
        draw(PORTS),
        draw(NUMBERS),
        draw(NUMBERS),
        TcpFlag(draw(st.integers(0, 31))),
        draw(st.integers(0, 65535)),
        draw(st.binary(max_size=200)),
        draw(st.none() | st.integers(1, 65535)),
        draw(st.none() | st.integers(0, 14)),
    )


@given(segments())
def test_a_segment_survives_its_packet(segment: Segment) -> None:
    packet = write_packet(segment, TO_DEVICE)
    header, payload = packet[:IP_HEADER_BYTES], packet[IP_HEADER_BYTES:]
    assert payload_bytes(header) == len(payload)
    assert read_segment(header, payload, TO_CLIENT) == segment


@given(segments(), st.data())
def test_a_packet_with_a_wrong_bit_is_dropped(segment: Segment, data: st.DataObject) -> None:
    packet = bytearray(write_packet(segment, TO_DEVICE))
    bit = data.draw(st.integers(IP_HEADER_BYTES * 8, len(packet) * 8 - 1))
    packet[bit // 8] ^= 1 << bit % 8
    assert read_segment(bytes(packet[:IP_HEADER_BYTES]), bytes(packet[IP_HEADER_BYTES:]), TO_CLIENT) is None


def test_a_packet_for_somebody_else_is_dropped() -> None:
    packet = write_packet(Segment(1, 2, 3, 4, TcpFlag.ACK, 5), Addresses(CLIENT, CLIENT))
    assert read_segment(packet[:IP_HEADER_BYTES], packet[IP_HEADER_BYTES:], TO_CLIENT) is None


class PeerStack:
    """A client's TCP, as simple as can be: acknowledges in order and grants a window, which may close."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.received = bytearray()
        self.seq = 1000
        self.connection = TcpConnection(
            Segment(5000, 80, 999, 0, TcpFlag.SYN, window), mtu_bytes=1280, emit=self.take
        )
        self.ended = False

    def take(self, segment: Segment) -> None:
        self.last = segment
        if segment.flags & TcpFlag.SYN:
            self.expected = segment.seq + 1
        elif segment.data or segment.flags & TcpFlag.FIN:
            assert len(segment.data) <= self.window
            if segment.seq == self.expected % 2**32:
                self.received += segment.data
                self.ended = bool(segment.flags & TcpFlag.FIN)
                self.expected += len(segment.data) + self.ended
            asyncio.get_running_loop().call_soon(self.acknowledge)

    def acknowledge(self, data: bytes = b"") -> bool:
        sent = Segment(5000, 80, self.seq, self.expected % 2**32, TcpFlag.ACK, self.window, data)
        self.seq += len(data)
        return self.connection.receive(sent)


@given(st.lists(st.binary(min_size=1, max_size=3000), max_size=8), st.integers(1, 2000))
def test_all_bytes_arrive_in_order_within_the_window(pieces: list[bytes], window: int) -> None:
    async def scenario() -> None:
        peer = PeerStack(window)
        assert peer.acknowledge(), "the third segment opens the connection"
        for piece in pieces:
            peer.connection.write(piece)
        peer.connection.close()
        async with asyncio.timeout(10.0):
            while not peer.ended:
                await asyncio.sleep(0)
        assert bytes(peer.received) == b"".join(pieces)
        peer.connection.die()

    asyncio.run(scenario())


def test_a_service_that_does_not_read_closes_the_window_and_opens_it_again() -> None:
    async def scenario() -> None:
        peer = PeerStack(1000)
        peer.acknowledge()
        sent = 0
        while peer.last.window:
            peer.acknowledge(bytes(50_000))
            sent += 50_000
            assert sent < 4 << 20, "it took everything"
        await peer.connection.reader.readexactly(sent)
        assert peer.last.window, "the client is told that there is room"
        peer.connection.die()

    asyncio.run(scenario())


def test_what_the_client_sends_twice_is_read_once() -> None:
    async def scenario() -> None:
        peer = PeerStack(1000)
        peer.acknowledge()
        peer.acknowledge(b"abc")
        peer.seq -= 3
        peer.acknowledge(b"abcdef")
        assert await peer.connection.reader.readexactly(6) == b"abcdef"
        peer.connection.abort()
        assert peer.last.flags & TcpFlag.RST
        assert await peer.connection.reader.read() == b""

    asyncio.run(scenario())
