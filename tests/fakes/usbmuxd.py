"""A usbmuxd with one device behind it that tells everything about itself, for tests of what is recorded."""

import asyncio
import plistlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

HEADER = struct.Struct("<IIII")
LOCKDOWN_PORT, APP_PORT, SILENT_PORT = 62078, 5000, 5001

UDID = "00008130-0012345678ABCDEF"
IDENTITY: dict[str, Any] = {
    "UniqueDeviceID": UDID,
    "UniqueChipID": 5124095576030191,
    "SerialNumber": "F2LXQ7ABCD",
    "InternationalMobileEquipmentIdentity": "356938035643809",
    "MLBSerialNumber": "F3X1234ABCDEFGH",
    "WiFiAddress": "a4:83:e7:12:34:56",
    "BluetoothAddress": "a4:83:e7:12:34:57",
    "DeviceName": "Änne's iPhone",
    "PhoneNumber": "+49 170 1234567",
    "ProductType": "iPhone17,1",
    "ProductVersion": "18.5",
    "PasswordProtected": False,
    "DevicePublicKey": b"-----BEGIN PUBLIC KEY-----\nMIIBCgKCAQEAsecretsecret\n-----END PUBLIC KEY-----\n",
    "TimeZone": "Europe/Berlin",
}
PAIR_RECORD: dict[str, Any] = {
    "HostID": "6D1B2C3E-1111-4222-8333-ABCDEFABCDEF",
    "SystemBUID": "7E1B2C3E-1111-4222-8333-ABCDEFABCDEF",
    "HostPrivateKey": b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhostkey\n-----END PRIVATE KEY-----\n",
    "DeviceCertificate": b"-----BEGIN CERTIFICATE-----\nMIICnodevicecertificate\n-----END CERTIFICATE-----\n",
    "EscrowBag": bytes(range(7, 39)),
    "WiFiMACAddress": "a4:83:e7:12:34:56",
}
NETWORK = "Kellerbar 5G"
APP_TEXT = (
    f'{{"device":"{UDID}","ip":"192.168.178.23","mac":"A4:83:E7:12:34:56","wifi":"{NETWORK}",'
    f'"mail":"anne@mail.example","model":"iPhone17,1","n":1}}\n'
).encode()
TLS = b"\x16\x03\x01\x00\x05hello" + b"\x17\x03\x03\x00\x10" + b"0123456789abcdef"


def secrets_of_device() -> list[bytes]:
    """Everything that must not be in a recording, in each form in which it was sent."""
    found: list[bytes] = [NETWORK.encode(), b"192.168.178.23", b"A4:83:E7:12:34:56", b"anne@mail.example"]
    for name, value in [*IDENTITY.items(), *PAIR_RECORD.items()]:
        if name in {"ProductType", "ProductVersion", "PasswordProtected"}:
            continue
        if isinstance(value, bytes):
            found.append(value)
            found += [line for line in value.splitlines() if not line.startswith(b"-----")][:1]
        else:
            found.append(str(value).encode())
    return [*found, UDID.replace("-", "").encode(), UDID.lower().encode()]


def mux_frame(content: dict[str, Any], tag: int) -> bytes:
    """A usbmux message."""
    packed = plistlib.dumps(content)
    return HEADER.pack(len(packed) + HEADER.size, 1, 8, tag) + packed


def plist_frame(content: dict[str, Any], form: plistlib.PlistFormat = plistlib.FMT_XML) -> bytes:
    """A lockdown message."""
    packed = plistlib.dumps(content, fmt=form)
    return struct.pack(">I", len(packed)) + packed


async def read_mux(reader: asyncio.StreamReader) -> tuple[dict[str, Any], int]:
    """One usbmux message and its tag."""
    size, _, _, tag = HEADER.unpack(await reader.readexactly(HEADER.size))
    return plistlib.loads(await reader.readexactly(size - HEADER.size)), tag


async def read_plist(reader: asyncio.StreamReader) -> dict[str, Any]:
    """One lockdown message."""
    (size,) = struct.unpack(">I", await reader.readexactly(4))
    return plistlib.loads(await reader.readexactly(size))


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            request, tag = await read_mux(reader)
            match request["MessageType"]:
                case "ListDevices":
                    properties = {"SerialNumber": UDID, "ConnectionType": "USB", "DeviceID": 3}
                    device = {"MessageType": "Attached", "DeviceID": 3, "Properties": properties}
                    writer.write(mux_frame({"DeviceList": [device]}, tag))
                case "ReadPairRecord":
                    record = plistlib.dumps(PAIR_RECORD)
                    writer.write(mux_frame({"PairRecordData": record}, tag))
                case "Connect":
                    port = ((request["PortNumber"] & 0xFF) << 8) | (request["PortNumber"] >> 8)
                    writer.write(mux_frame({"MessageType": "Result", "Number": 0}, tag))
                    await writer.drain()
                    await {LOCKDOWN_PORT: _lockdown, APP_PORT: _app, SILENT_PORT: _silent}[port](
                        reader, writer
                    )
                    return
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _lockdown(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        request = await read_plist(reader)
        if request["Request"] == "StartSession":
            writer.write(plist_frame({"EnableSessionSSL": True, "SessionID": "s"}, plistlib.FMT_BINARY))
            await reader.readexactly(len(TLS))
            writer.write(TLS)
            return
        writer.write(plist_frame({"Request": "GetValue", "Value": IDENTITY}))


async def _app(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    # A secret that two packets tear apart.
    middle = APP_TEXT.index(UDID.encode()) + 9
    for part in (APP_TEXT[:middle], APP_TEXT[middle:], b"\x00\xff" + UDID.encode("utf-16-be")):
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.02)


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@asynccontextmanager
async def usbmuxd(path: Path) -> AsyncIterator[None]:
    """It serves while the block runs."""
    server = await asyncio.start_unix_server(_serve, path)
    try:
        yield
    finally:
        server.close()


async def connect_to(path: Path, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client's stream to a port of the device."""
    reader, writer = await asyncio.open_unix_connection(path)
    swapped = ((port & 0xFF) << 8) | (port >> 8)
    writer.write(mux_frame({"MessageType": "Connect", "DeviceID": 3, "PortNumber": swapped}, 1))
    answer, _ = await read_mux(reader)
    assert answer["Number"] == 0
    return reader, writer
