"""One emulated device: what it remembers, ports, connections, processes, log. Services are elsewhere."""

import asyncio
import logging
import ssl
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Final

from device_agent.virtual.device.app_bridge import bridge_to_app
from device_agent.virtual.device.device_key import DeviceKey
from device_agent.virtual.device.device_log import DeviceLog
from device_agent.virtual.device.disk import Disk
from device_agent.virtual.device.process_table import ProcessTable
from device_agent.virtual.device.record import DeviceRecord, PairedHost, write_record
from device_agent.virtual.device.topics import Topics
from device_agent.virtual.device.triggers import Triggers
from device_agent.virtual.link.link import Link
from device_agent.virtual.link.ports import AppPort, Port, PortTable
from device_agent.virtual.link.services import Service
from device_agent.virtual.link.wire import Wire

_LOG: Final = logging.getLogger(__name__)


class VirtualDevice:
    """State and connections of one device. `services` is filled by service_set.equip."""

    def __init__(self, folder: Path, record: DeviceRecord) -> None:
        self.folder = folder
        self.record = record
        if not record.boot_id:
            record.boot_id = str(uuid.uuid4()).upper()
        self.disk = Disk(folder, record)
        self.link = Link()
        self.log = DeviceLog(record)
        self.notifications = Topics()
        self.triggers = Triggers()
        self.ports = PortTable(self._bridge)
        self.processes = ProcessTable()
        self.services: Mapping[str, Service] = {}
        self.assertions = 0
        """Power assertions that clients hold."""
        self._tunnels: set[Wire] = set()
        self.sample_interval_floor_s = 0.0
        """sysmontap samples no faster than this, whatever it is asked for."""
        self.port_delay_s = 0.0
        """How long an app's port refuses after its launch."""
        self._wires: set[Wire] = set()

    @property
    def udid(self) -> str:
        """As usbmuxd and lockdownd say it."""
        return self.record.udid

    @property
    def has_image(self) -> bool:
        """Whether the developer services are there."""
        return self.record.image_mounted and self.record.developer_mode

    @property
    def open_wires(self) -> tuple[str, ...]:
        """Labels of the connections that are open, through USB or a tunnel."""
        return tuple(sorted(wire.label for wire in self._wires))

    @property
    def tunnels(self) -> int:
        return len(self._tunnels)

    @contextmanager
    def tunnel(self, wire: Wire) -> Iterator[None]:
        """Until the end of the block `wire` counts as a tunnel."""
        self._tunnels.add(wire)
        try:
            yield
        finally:
            self._tunnels.discard(wire)

    def end_tunnels(self) -> None:
        """Aborts them; the cable stays in."""
        for wire in list(self._tunnels):
            wire.abort()

    @cached_property
    def key(self) -> DeviceKey:
        """Made at the first question: most of a fleet's start would be spent on keys."""
        return DeviceKey(self.folder)

    def tls_context(self, host: PairedHost) -> ssl.SSLContext:
        """The device's side of TLS towards a host."""
        return self.key.tls_context(host.device_certificate)

    def save(self) -> None:
        """Keeps the record; OSError when the real disk cannot be written."""
        write_record(self.folder, self.record)

    def forget_host(self, host_id: str) -> None:
        """The pairing is gone on the device's side; its connections end, the host's record stays."""
        if self.record.hosts.pop(host_id, None) is not None:
            self.save()
        for wire in list(self._wires):
            if wire.host_id == host_id:
                wire.abort()

    def end_connections(self, pid: int | None = None) -> None:
        """Aborts what is open; with `pid` only what that app serves."""
        for wire in list(self._wires):
            if pid is None or wire.owner_pid == pid:
                wire.abort()

    async def serve(self, port: Port, wire: Wire) -> None:
        """One connection from its first byte to its end; what the client does wrong ends it."""
        wire.host_id = port.host_id
        if port.secure:
            host = self.record.hosts.get(port.host_id or "")
            if host is None:
                return
            try:
                await wire.start_tls(self.tls_context(host))
            except (OSError, ssl.SSLError):
                return
        else:
            wire.continue_reading()
        await self.converse(port, wire)

    async def converse(self, port: Port, wire: Wire) -> None:
        """serve, for a connection that is encrypted already or needs no TLS."""
        self._wires.add(wire)
        try:
            await port.handler(wire)
        except (asyncio.IncompleteReadError, OSError, ValueError, KeyError, TypeError) as error:
            # The client left, or sent what the service does not understand: a device ends such a connection.
            self.log.say_as("lockdownd", f"{port.label} ended: {type(error).__name__}: {error}")
        except Exception:
            # Foreign bytes inside a codec, or a fault of ours: it costs this connection and is seen.
            _LOG.exception("%s of %s", port.label, self.udid)
        finally:
            self._wires.discard(wire)
            with suppress(ConnectionError):
                wire.close()

    async def _bridge(
        self, app: AppPort, wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        wire.owner_pid = app.pid
        await bridge_to_app(wire, reader, writer, self.triggers)
