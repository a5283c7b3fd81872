"""Connections inside a tunnel: their number is bounded, and one that is over makes room for another."""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address
from pathlib import Path

from device_agent.virtual.app.apps import AppCommand, Apps
from device_agent.virtual.app.report_writer import ReportWriter
from device_agent.virtual.device.catalogue import model_of, parse_version
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.device.record import new_record
from device_agent.virtual.link.ip_packets import (
    IP_HEADER_BYTES,
    Addresses,
    Segment,
    TcpFlag,
    payload_bytes,
    read_segment,
    write_packet,
)
from device_agent.virtual.link.link import PacedWriter
from device_agent.virtual.link.ports import AppPort
from device_agent.virtual.link.wire import Wire
from device_agent.virtual.protocols.tunnel import serve_tunnel

APP_PORT = 9000
FIRST_CLIENT_PORT = 20_000


class Client:
    """The other end of a carrier, in whose packets source and target are the other way round."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def shake_hands(self) -> None:
        body = json.dumps({"type": "clientHandshakeRequest", "mtu": 1280}).encode()
        self.writer.write(b"CDTunnel" + struct.pack(">H", len(body)) + body)
        assert await self.reader.readexactly(8) == b"CDTunnel"
        (size_bytes,) = struct.unpack(">H", await self.reader.readexactly(2))
        told = json.loads(await self.reader.readexactly(size_bytes))
        device = IPv6Address(told["serverAddress"]).packed
        client = IPv6Address(told["clientParameters"]["address"]).packed
        self.addresses = Addresses(client, device)

    def say(self, port: int, flags: TcpFlag, seq: int, ack: int = 0) -> None:
        self.writer.write(write_packet(Segment(port, APP_PORT, seq, ack, flags, 0xFFFF), self.addresses))

    async def hear(self) -> Segment:
        async with asyncio.timeout(10.0):
            header = await self.reader.readexactly(IP_HEADER_BYTES)
            payload = await self.reader.readexactly(payload_bytes(header))
        segment = read_segment(header, payload, self.addresses)
        assert segment is not None
        return segment


async def with_client(folder: Path, talk: Callable[[Client], Awaitable[None]]) -> None:
    """`talk` on a carrier to a device whose app has a port and refuses on it."""
    device = VirtualDevice(
        folder, new_record(1, model_of("iPhone17,1"), parse_version("18.5"), 1 << 30, 1 << 30)
    )
    device.ports.listen_for_app(
        APP_PORT, AppPort(400, folder / "none", asyncio.get_running_loop().time() + 600)
    )
    apps = Apps(device, AppCommand(("true",), folder), ReportWriter(device))
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, PacedWriter(writer, device.link), device.link, "carrier")
        try:
            await serve_tunnel(device, apps, wire)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            served.set()

    server = await asyncio.start_unix_server(serve, folder / "s")
    reader, writer = await asyncio.open_unix_connection(folder / "s")
    client = Client(reader, writer)
    try:
        await client.shake_hands()
        await talk(client)
    finally:
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(10.0):
            await served.wait()
        server.close()
        await server.wait_closed()


def test_a_client_that_is_turned_away_again_and_again_is_still_answered(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        for number in range(600):
            port = FIRST_CLIENT_PORT + number
            client.say(port, TcpFlag.SYN, 1000)
            answer = await client.hear()
            assert answer.flags == TcpFlag.SYN | TcpFlag.ACK
            client.say(port, TcpFlag.ACK, 1001, answer.seq + 1)
            assert (await client.hear()).flags & TcpFlag.RST

    asyncio.run(with_client(tmp_path, talk))


def test_more_connections_than_there_is_room_for_are_refused_and_not_left_waiting(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        answers = []
        for number in range(300):
            client.say(FIRST_CLIENT_PORT + number, TcpFlag.SYN, 1000)
            answers.append((await client.hear()).flags)
        assert all(flags & TcpFlag.SYN for flags in answers[:256])
        assert all(flags & TcpFlag.RST for flags in answers[256:])

    asyncio.run(with_client(tmp_path, talk))
