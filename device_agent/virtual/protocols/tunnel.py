"""CoreDeviceProxy, from iOS 17.4 on: IPv6 packets over a lockdown connection, to a network of one device."""

import asyncio
import ipaddress
import itertools
import json
import secrets
import struct
from contextlib import suppress
from typing import Any, Final

from device_agent.virtual.app.apps import Apps
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.link.ip_packets import (
    IP_HEADER_BYTES,
    Addresses,
    Segment,
    TcpFlag,
    payload_bytes,
    read_segment,
    write_packet,
)
from device_agent.virtual.link.link import Link, PacedWriter
from device_agent.virtual.link.ports import Port
from device_agent.virtual.link.tunnel_tcp import TcpConnection
from device_agent.virtual.link.wire import Wire
from device_agent.virtual.protocols.tunnel_directory import TunnelDirectory

_MAGIC: Final = b"CDTunnel"
_MAX_HANDSHAKE_BYTES: Final = 16 * 1024
_MTU_BYTES: Final = 16000
_SMALLEST_MTU_BYTES: Final = 1280
_FIRST_DIRECTORY_PORT: Final = 58783
_MAX_CONNECTIONS: Final = 256
_NUMBERS: Final = itertools.count(1)


async def serve_tunnel(device: VirtualDevice, apps: Apps, wire: Wire) -> None:
    """One tunnel, until its carrier ends; everything in it ends with it."""
    tunnel = Tunnel(device, apps, wire)
    with device.tunnel(wire):
        await tunnel.run()


class Tunnel:
    """Addresses are new for each tunnel."""

    def __init__(self, device: VirtualDevice, apps: Apps, carrier: Wire) -> None:
        self._device = device
        self._carrier = carrier
        self._directory = TunnelDirectory(device, apps)
        self._connections: dict[tuple[int, int], TcpConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        number = next(_NUMBERS)
        network = f"fd{secrets.randbits(8):02x}:{secrets.randbits(16):x}:{number & 0xFFFF:x}::"
        self._device_address, self._client_address = network + "1", network + "2"
        self._addresses = Addresses(
            ipaddress.IPv6Address(self._device_address).packed,
            ipaddress.IPv6Address(self._client_address).packed,
        )
        self._directory_port = _FIRST_DIRECTORY_PORT + number % 1000
        self._mtu_bytes = _MTU_BYTES

    async def run(self) -> None:
        """Handshake, then packets until the carrier ends."""
        await self._shake_hands()
        try:
            while True:
                header = await self._carrier.receive(IP_HEADER_BYTES)
                payload = await self._carrier.receive(payload_bytes(header))
                segment = read_segment(header, payload, self._addresses)
                if segment is not None:
                    self._route(segment)
                # What we said to it must have gone before more is read: no queue grows without bound.
                await self._carrier.writer.drain()
        finally:
            for connection in list(self._connections.values()):
                connection.die()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _shake_hands(self) -> None:
        magic = await self._carrier.receive(len(_MAGIC))
        (size_bytes,) = struct.unpack(">H", await self._carrier.receive(2))
        if magic != _MAGIC or size_bytes > _MAX_HANDSHAKE_BYTES:
            raise ValueError("no tunnel handshake")
        asked: Any = json.loads(await self._carrier.receive(size_bytes))
        asked_bytes = int(asked.get("mtu", _MTU_BYTES))
        self._mtu_bytes = max(_SMALLEST_MTU_BYTES, min(asked_bytes, _MTU_BYTES))
        answer = {
            "type": "serverHandshakeResponse",
            "clientParameters": {
                "address": self._client_address,
                "netmask": "ffff:ffff:ffff:ffff::",
                "mtu": self._mtu_bytes,
            },
            "serverAddress": self._device_address,
            "serverRSDPort": self._directory_port,
        }
        body = json.dumps(answer).encode()
        await self._carrier.send(_MAGIC + struct.pack(">H", len(body)) + body)

    def _emit(self, segment: Segment) -> None:
        self._carrier.writer.write(write_packet(segment, self._addresses))

    def _route(self, segment: Segment) -> None:
        key = (segment.source_port, segment.target_port)
        connection = self._connections.get(key)
        if connection is not None and connection.ended.is_set():
            # We ended it; the client's number may come again.
            del self._connections[key]
            connection = None
        if connection is not None:
            if connection.receive(segment):
                self._start(connection)
            if connection.ended.is_set():
                del self._connections[key]
        elif segment.flags & TcpFlag.SYN and not segment.flags & TcpFlag.ACK:
            self._open(key, segment)
        elif not segment.flags & TcpFlag.RST and (segment.data or segment.flags & TcpFlag.FIN):
            # A bare acknowledgement of what is over needs no answer.
            self._refuse(segment)

    def _open(self, key: tuple[int, int], syn: Segment) -> None:
        known = syn.target_port == self._directory_port or self._directory.handler(syn.target_port)
        if not (known or self._device.ports.is_listening(syn.target_port)):
            self._refuse(syn)
            return
        if len(self._connections) >= _MAX_CONNECTIONS:
            # Those that we ended stay until their client speaks again, and some never do.
            self._connections = {
                at: each for at, each in self._connections.items() if not each.ended.is_set()
            }
        if len(self._connections) >= _MAX_CONNECTIONS:
            self._refuse(syn)
        else:
            self._connections[key] = TcpConnection(syn, self._mtu_bytes, self._emit)

    def _refuse(self, segment: Segment) -> None:
        ack = segment.seq + len(segment.data) + bool(segment.flags & TcpFlag.SYN)
        flags = TcpFlag.RST | TcpFlag.ACK
        self._emit(Segment(segment.target_port, segment.source_port, segment.ack, ack, flags, 0))

    def _start(self, connection: TcpConnection) -> None:
        task = asyncio.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: TcpConnection) -> None:
        port = await self._port(connection.port)
        if port is None:
            connection.abort()
            return
        # The carrier is slowed down by the device's link already.
        link = Link()
        wire = Wire(connection.reader, PacedWriter(connection, link), link, f"tunnel:{port.label}")
        try:
            await self._device.converse(port, wire)
        finally:
            with suppress(ConnectionError):
                connection.close()

    async def _port(self, number: int) -> Port | None:
        if number == self._directory_port:
            return Port("directory", self._directory.serve)
        found = self._directory.handler(number)
        if found is not None:
            return Port(*found)
        return await self._device.ports.open(number)
