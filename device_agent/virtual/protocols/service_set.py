"""Which services a device has: a matter of its system's version."""

from collections.abc import Awaitable, Callable
from functools import partial

from device_agent.virtual.app.apps import Apps
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.link.ports import LOCKDOWN_PORT, Port
from device_agent.virtual.link.services import Service
from device_agent.virtual.link.wire import Wire
from device_agent.virtual.protocols.afc import serve_afc
from device_agent.virtual.protocols.afc_session import AfcSession
from device_agent.virtual.protocols.crash_services import serve_crash_copy, serve_crash_mover
from device_agent.virtual.protocols.diagnostics import serve_diagnostics
from device_agent.virtual.protocols.house_arrest import serve_house_arrest
from device_agent.virtual.protocols.image_mounter import ImageMounter
from device_agent.virtual.protocols.installation_proxy import InstallationProxy
from device_agent.virtual.protocols.instruments import instruments_server
from device_agent.virtual.protocols.lockdown import Lockdown
from device_agent.virtual.protocols.os_trace import serve_os_trace
from device_agent.virtual.protocols.small_services import (
    serve_assertions,
    serve_developer_mode,
    serve_heartbeat,
    serve_notifications,
)
from device_agent.virtual.protocols.tunnel import serve_tunnel

Handler = Callable[[Wire], Awaitable[None]]
Restart = Callable[[], None]


def equip(device: VirtualDevice, apps: Apps, installer: InstallationProxy, restart: Restart) -> None:
    """Gives a device its services and its lockdownd; some services restart it."""
    device.services = {each.name: each for each in _services(device, apps, installer, restart)}
    start_lockdown(device)


def start_lockdown(device: VirtualDevice) -> None:
    """lockdownd listens: from the first moment after a boot."""
    device.ports.listen(LOCKDOWN_PORT, Port("lockdownd", Lockdown(device).serve))


def _services(
    device: VirtualDevice, apps: Apps, installer: InstallationProxy, restart: Restart
) -> list[Service]:
    services = [
        Service("com.apple.afc", _media(device), needs_unlock=True),
        Service("com.apple.mobile.house_arrest", partial(serve_house_arrest, device), needs_unlock=True),
        Service("com.apple.mobile.installation_proxy", installer.serve, needs_unlock=True),
    ]
    services += _services_without_unlock(device, restart)
    instruments = instruments_server(device, apps)
    if device.record.version.has_lockdown_instruments:
        name = "com.apple.instruments.remoteserver.DVTSecureSocketProxy"
        services.append(Service(name, instruments, needs_unlock=True, needs_image=True, in_tunnel=False))
    if device.record.version.has_core_device_proxy:
        name = "com.apple.internal.devicecompute.CoreDeviceProxy"
        services.append(Service(name, partial(serve_tunnel, device, apps), in_tunnel=False))
    return services


def _services_without_unlock(device: VirtualDevice, restart: Restart) -> list[Service]:
    return [
        Service("com.apple.crashreportcopymobile", partial(serve_crash_copy, device)),
        Service("com.apple.crashreportmover", partial(serve_crash_mover, device)),
        Service("com.apple.os_trace_relay", partial(serve_os_trace, device)),
        Service("com.apple.mobile.diagnostics_relay", partial(serve_diagnostics, device, restart)),
        Service("com.apple.mobile.notification_proxy", partial(serve_notifications, device)),
        Service("com.apple.mobile.heartbeat", serve_heartbeat),
        Service("com.apple.mobile.assertion_agent", partial(serve_assertions, device)),
        Service("com.apple.mobile.mobile_image_mounter", _mounter(device)),
        Service("com.apple.amfi.lockdown", partial(serve_developer_mode, device, restart)),
    ]


def _mounter(device: VirtualDevice) -> Handler:
    async def serve(wire: Wire) -> None:
        await ImageMounter(device).serve(wire)

    return serve


def _media(device: VirtualDevice) -> Handler:
    async def serve(wire: Wire) -> None:
        await serve_afc(wire, AfcSession(device.disk.media, device.disk, device.triggers))

    return serve
