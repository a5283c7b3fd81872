"""house_arrest: AFC inside one app's container."""

from typing import Any

from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.link.wire import Wire
from device_agent.virtual.protocols.afc import serve_afc
from device_agent.virtual.protocols.afc_session import AfcSession


async def serve_house_arrest(device: VirtualDevice, wire: Wire) -> None:
    """One command that opens a container, then AFC. Paths begin with /Documents for both commands."""
    query = await wire.receive_plist()
    refused = _refusal(device, query)
    if refused:
        await wire.send_plist({"Error": refused})
        return
    app = device.record.apps[str(query["Identifier"])]
    await wire.send_plist({"Status": "Complete"})
    root = device.disk.container(app.container)
    await serve_afc(wire, AfcSession(root, device.disk, device.triggers))


def _refusal(device: VirtualDevice, query: dict[str, Any]) -> str:
    app = device.record.apps.get(str(query.get("Identifier")))
    if app is None:
        return "ApplicationLookupFailed"
    if query.get("Command") == "VendDocuments":
        return "" if app.info.get("UIFileSharingEnabled", True) else "InstallationLookupFailed"
    return "" if query.get("Command") == "VendContainer" else "UnknownCommand"
