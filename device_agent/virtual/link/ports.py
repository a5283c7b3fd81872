"""The TCP ports of one device: lockdownd's, those of services that were started, those of apps."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from device_agent.virtual.link.wire import Wire

LOCKDOWN_PORT: Final = 62078
_FIRST_SERVICE_PORT: Final = 49152
_LAST_SERVICE_PORT: Final = 65535
_CONNECT_TIMEOUT_S: Final = 2.0
_MAX_UNUSED: Final = 256
"""Services that were started and never connected to: the oldest lose their ports."""

Handler = Callable[[Wire], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Port:
    """What answers on a port. host_id: of the session that started the service; secure: TLS comes first."""

    label: str
    handler: Handler
    host_id: str | None = None
    secure: bool = False


@dataclass(frozen=True, slots=True)
class AppPort:
    """A port on which an app listens: bridged to the Unix socket of its process once that accepts."""

    pid: int
    socket: Path
    open_at_s: float = 0.0
    """On the loop's clock: refused before."""


Bridge = Callable[[AppPort, Wire, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class PortTable:
    """Who listens. Services take a port for one connection; apps keep theirs while they live."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._ports: dict[int, Port] = {}
        self._apps: dict[int, AppPort] = {}
        self._numbers = itertools.cycle(range(_FIRST_SERVICE_PORT, _LAST_SERVICE_PORT))

    def listen(self, number: int, port: Port) -> None:
        """`port` answers on `number` until clear."""
        self._ports[number] = port

    def listen_once(self, port: Port) -> int:
        """A free number on which one connection is taken."""
        number = next(free for free in self._numbers if free not in self._ports and free not in self._apps)
        self._ports[number] = port
        unused = [each for each in self._ports if each != LOCKDOWN_PORT]
        for oldest in unused[:-_MAX_UNUSED]:
            del self._ports[oldest]
        return number

    def listen_for_app(self, number: int, port: AppPort) -> None:
        """The app's port; an older app loses it."""
        self._apps[number] = port

    def forget_app(self, pid: int) -> None:
        """The app is gone: its ports refuse."""
        self._apps = {number: port for number, port in self._apps.items() if port.pid != pid}

    def clear(self) -> None:
        """As after a reboot: nobody listens."""
        self._ports.clear()
        self._apps.clear()

    def is_listening(self, number: int) -> bool:
        """Whether somebody is there; an app may still refuse."""
        return number in self._apps or number in self._ports

    async def open(self, number: int) -> Port | None:
        """What serves a new connection, None when the port refuses."""
        app = self._apps.get(number)
        if app is not None:
            return await self._open_app(app)
        port = self._ports.get(number)
        if port is not None and number != LOCKDOWN_PORT:
            del self._ports[number]
        return port

    async def _open_app(self, app: AppPort) -> Port | None:
        if asyncio.get_running_loop().time() < app.open_at_s:
            return None
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(app.socket)
        except (OSError, TimeoutError):
            # The process has not come to listening yet, or it hangs.
            return None

        async def serve(wire: Wire) -> None:
            await self._bridge(app, wire, reader, writer)

        return Port(f"app:{app.pid}", serve)
