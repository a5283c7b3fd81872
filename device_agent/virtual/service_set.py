"""Which services a device has: a matter of its system's version."""

from collections.abc import Awaitable, Callable
from functools import partial

from device_agent.virtual.afc import serve_afc
from device_agent.virtual.afc_session import AfcSession
from device_agent.virtual.apps import Apps
from device_agent.virtual.device import VirtualDevice
from device_agent.virtual.house_arrest import serve_house_arrest
from device_agent.virtual.installation_proxy import InstallationProxy
from device_agent.virtual.instruments import instruments_server
from device_agent.virtual.lockdown import Lockdown
from device_agent.virtual.ports import LOCKDOWN_PORT, Port
from device_agent.virtual.services import Service
from device_agent.virtual.wire import Wire

Handler = Callable[[Wire], Awaitable[None]]


def equip(device: VirtualDevice, apps: Apps, installer: InstallationProxy) -> None:
    """Gives a device its services and its lockdownd."""
    device.services = {each.name: each for each in _services(device, apps, installer)}
    start_lockdown(device)


def start_lockdown(device: VirtualDevice) -> None:
    """lockdownd listens: from the first moment after a boot."""
    device.ports.listen(LOCKDOWN_PORT, Port("lockdownd", Lockdown(device).serve))


def _services(device: VirtualDevice, apps: Apps, installer: InstallationProxy) -> list[Service]:
    services = [
        Service("com.apple.afc", _media(device), needs_unlock=True),
        Service("com.apple.mobile.house_arrest", partial(serve_house_arrest, device), needs_unlock=True),
        Service("com.apple.mobile.installation_proxy", installer.serve, needs_unlock=True),
    ]
    instruments = instruments_server(device, apps)
    if device.record.version.has_lockdown_instruments:
        name = "com.apple.instruments.remoteserver.DVTSecureSocketProxy"
        services.append(Service(name, instruments, needs_unlock=True, needs_image=True, in_tunnel=False))
    return services


def _media(device: VirtualDevice) -> Handler:
    async def serve(wire: Wire) -> None:
        await serve_afc(wire, AfcSession(device.disk.media, device.disk, device.triggers))

    return serve
