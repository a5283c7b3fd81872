"""A service that lockdownd starts by name, and what it needs before it may be started."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from device_agent.virtual.link.wire import Wire


@dataclass(frozen=True, slots=True)
class Service:
    """One row of a device's service set.

    needs_unlock: refused while the device is locked. needs_image: exists only while the developer disk
    image is mounted. in_tunnel: offered by the tunnel's directory too. in_lockdown: offered by lockdownd.
    """

    name: str
    handler: Callable[[Wire], Awaitable[None]]
    needs_unlock: bool = False
    needs_image: bool = False
    in_tunnel: bool = True
    in_lockdown: bool = True
