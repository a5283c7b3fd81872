"""os_trace_relay: the device's log as binary records, and its list of processes."""

import plistlib
import struct
import time
import uuid
from typing import Any, Final

from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.device.device_log import LogLine
from device_agent.virtual.link.duplex import until_client_leaves
from device_agent.virtual.link.wire import Wire

_ALL_PIDS: Final = frozenset({-1, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
_HISTORICAL: Final = 0x08
_RECORD_MARK: Final = b"\x02"
_REPLY_MARK: Final = b"\x01"
_LOG_MESSAGE: Final = 0x0400
# Unknown bytes, pid, unique pid, image, unknown, seconds, unknown, microseconds, unknown, level, unknown,
# ticks, thread, sender, sizes of sender and message, unknown, offset, sizes of subsystem and category.
_RECORD: Final = struct.Struct("<9xIQ16s18xI4xIxB6xQQ16sHH2xIII4x")


async def serve_os_trace(device: VirtualDevice, wire: Wire) -> None:
    """One request per connection."""
    query = await wire.receive_plist()
    match query.get("Request"):
        case "PidList":
            payload = {str(each.pid): {"ProcessName": each.name} for each in device.processes.all()}
            await _reply(wire, {"Status": "RequestSuccessful", "Payload": payload})
        case "StartActivity":
            await _stream(device, wire, query)
        case other:
            await _reply(wire, {"Status": "RequestFailed", "Error": f"no request {other!r}"})


async def _reply(wire: Wire, message: dict[str, Any]) -> None:
    body = plistlib.dumps(message)
    await wire.send(_REPLY_MARK + struct.pack(">I", len(body)) + body)


async def _stream(device: VirtualDevice, wire: Wire, query: dict[str, Any]) -> None:
    wanted = int(query.get("Pid", -1))
    body = plistlib.dumps({"Status": "RequestSuccessful"})
    # The size of the size comes first; both are little-endian here.
    await wire.send(struct.pack("<II", 4, len(body)) + body)
    kept = list(device.log.kept) if int(query.get("StreamFlags", 0)) & _HISTORICAL else []

    async def send_lines() -> None:
        with device.log.listen() as lines:
            for line in kept:
                await _send_line(wire, line, wanted)
            last = kept[-1].number if kept else 0
            while True:
                line = await lines.get()
                if line.number > last:
                    await _send_line(wire, line, wanted)

    await until_client_leaves(wire, send_lines())


async def _send_line(wire: Wire, line: LogLine, wanted: int) -> None:
    if wanted in _ALL_PIDS or wanted == line.pid:
        record = log_record(line)
        await wire.send(_RECORD_MARK + struct.pack("<I", len(record)) + record)


def log_record(line: LogLine) -> bytes:
    """The binary record of one line: a fixed head and five strings."""
    file_name = _text(f"/var/containers/Bundle/{line.process}")
    sender, message = _text(line.sender), _text(line.message[:4000])
    subsystem, category = (_text(part) if part else b"" for part in (line.subsystem, line.category))
    seconds = line.at.timestamp()
    head = _RECORD.pack(
        line.pid,
        line.pid,
        uuid.uuid5(uuid.NAMESPACE_OID, line.process).bytes,
        int(seconds),
        line.at.microsecond,
        0,
        time.monotonic_ns(),
        line.pid << 8 | 1,
        uuid.uuid5(uuid.NAMESPACE_OID, line.sender).bytes,
        len(sender),
        len(message),
        _LOG_MESSAGE,
        len(subsystem),
        len(category),
    )
    return head + file_name + sender + message + subsystem + category


def _text(text: str) -> bytes:
    return text.replace("\0", " ").encode() + b"\0"
