"""Crash reports for clients: the copy service shows the folder over AFC, the mover brings what is pending."""

import os

from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.device.triggers import Triggers
from device_agent.virtual.link.wire import Wire
from device_agent.virtual.protocols.afc import serve_afc
from device_agent.virtual.protocols.afc_session import AfcSession

_DONE = b"ping\0"


async def serve_crash_copy(device: VirtualDevice, wire: Wire) -> None:
    """crashreportcopymobile."""
    # Its own triggers: what a client does to reports is not a push of the app's files.
    await serve_afc(wire, AfcSession(device.disk.crash_reports, device.disk, Triggers()))


async def serve_crash_mover(device: VirtualDevice, wire: Wire) -> None:
    """crashreportmover: moves what is pending, then says so."""
    for path in sorted(device.disk.pending_reports.iterdir()):
        os.replace(path, device.disk.crash_reports / path.name)
    await wire.send(_DONE)
    # The client closes; the real service waits for it too.
    await wire.receive_some(1)
