"""The directory of a tunnel (RemoteServiceDiscovery): which services there are now, and on which ports."""

import itertools
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

from device_agent.virtual.app.apps import Apps
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.link.services import Service
from device_agent.virtual.link.wire import Wire
from device_agent.virtual.protocols.core_device import core_device_services
from device_agent.virtual.protocols.instruments import instruments_server
from device_agent.virtual.protocols.lockdown import Lockdown
from device_agent.virtual.protocols.xpc import Message, serve_xpc, unsigned

_FIRST_PORT: Final = 50000
_REMOTE_XPC_FLAGS: Final = 0x0100_0000_0000_0006
_ENTITLEMENT: Final = "com.apple.mobile.lockdown.remote.trusted"

Handler = Callable[[Wire], Awaitable[None]]


class TunnelDirectory:
    """Of one tunnel. A client's list is a snapshot: what comes later is seen by who asks anew."""

    def __init__(self, device: VirtualDevice, apps: Apps) -> None:
        self._device = device
        self._apps = apps
        self._numbers = itertools.count(_FIRST_PORT)
        self._ports: dict[str, int] = {}
        self._handlers: dict[int, tuple[str, Handler]] = {}
        self._uuid = uuid.uuid4()

    def handler(self, port: int) -> tuple[str, Handler] | None:
        """Name and handler of what the directory has put on this port."""
        return self._handlers.get(port)

    async def serve(self, wire: Wire) -> None:
        """One client's conversation with the directory."""
        await serve_xpc(wire, self._answer)

    async def _answer(self, message: Message) -> Message | None:
        if message.get("MessageType") != "Handshake":
            return None
        record = self._device.record
        return {
            "MessageType": "Handshake",
            "MessagingProtocolVersion": unsigned(3),
            "UUID": self._uuid,
            "Properties": {
                "BuildVersion": record.version.build,
                "DeviceClass": record.model.device_class,
                "HWModel": record.model.hardware_model,
                "OSVersion": str(record.version),
                "ProductType": record.product_type,
                "RemoteXPCVersionFlags": unsigned(_REMOTE_XPC_FLAGS),
                "UniqueChipID": unsigned(record.ecid),
                "UniqueDeviceID": record.udid,
                "DynofarmVirtual": True,
            },
            "Services": self._services(),
        }

    def _services(self) -> dict[str, Any]:
        listed: dict[str, Any] = {}
        for service in self._device.services.values():
            if service.in_tunnel and (self._device.has_image or not service.needs_image):
                name = f"{service.name}.shim.remote"
                listed[name] = self._entry(name, self._shim(service), {})
        trusted = Service(_ENTITLEMENT, Lockdown(self._device).serve_trusted)
        listed[_ENTITLEMENT] = self._entry(_ENTITLEMENT, self._shim(trusted), {})
        if self._device.has_image:
            listed |= self._developer_services()
        return listed

    def _developer_services(self) -> dict[str, Any]:
        hub = "com.apple.instruments.dtservicehub"
        listed = {hub: self._entry(hub, instruments_server(self._device, self._apps), {})}
        for service in core_device_services(self._device, self._apps):
            properties = {"UsesRemoteXPC": True, "Features": list(service.features)}
            listed[service.name] = self._entry(service.name, service.serve, properties)
        return listed

    def _entry(self, name: str, handler: Handler, properties: dict[str, Any]) -> dict[str, Any]:
        port = self._ports.get(name)
        if port is None:
            port = self._ports[name] = next(self._numbers)
        self._handlers[port] = (name, handler)
        return {"Port": str(port), "Entitlement": _ENTITLEMENT, "Properties": properties}

    def _shim(self, service: Service) -> Handler:
        """A service of lockdown inside the tunnel: one exchange of greetings, then as usual."""

        async def serve(wire: Wire) -> None:
            await wire.receive_plist()
            await wire.send_plist({"Request": "RSDCheckin"})
            if service.needs_unlock and self._device.record.is_locked:
                await wire.send_plist({"Request": "StartService", "Error": "PasswordProtected"})
                return
            await wire.send_plist({"Request": "StartService"})
            await service.handler(wire)

        return serve
