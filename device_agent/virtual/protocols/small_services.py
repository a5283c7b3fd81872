"""Services of a few messages each: developer mode, notifications, heartbeat, power assertions."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.link.wire import Wire

HEARTBEAT_INTERVAL_S: Final = 10
_HEARTBEAT_PATIENCE_S: Final = 30.0
_MAX_OBSERVED: Final = 256
_MAX_ASSERTIONS: Final = 64
_LONGEST_ASSERTION_S: Final = 86_400.0
_REVEAL, _ENABLE, _ACCEPT = range(3)


async def serve_developer_mode(device: VirtualDevice, restart: Callable[[], None], wire: Wire) -> None:
    """amfi: reveal the setting, enable the mode (which restarts the device), confirm after the restart."""
    query = await wire.receive_plist()
    match query.get("action"):
        case action if action == _ENABLE and device.record.has_passcode:
            await wire.send_plist({"Error": "Device has a passcode set"})
        case action if action == _ENABLE:
            device.record.developer_mode = True
            device.save()
            await wire.send_plist({"success": True})
            restart()
        case action if action in (_REVEAL, _ACCEPT):
            await wire.send_plist({"success": True})
        case other:
            await wire.send_plist({"Error": f"no action {other!r}"})


async def serve_notifications(device: VirtualDevice, wire: Wire) -> None:
    """notification_proxy: relays what the client observes."""
    observed: set[str] = set()

    async def relay() -> None:
        with device.notifications.listen() as names:
            while True:
                name = await names.get()
                if name in observed:
                    await wire.send_plist({"Command": "RelayNotification", "Name": name})

    relaying = asyncio.create_task(relay())
    try:
        while await _notification_command(device, wire, observed):
            pass
    finally:
        relaying.cancel()
        await asyncio.gather(relaying, return_exceptions=True)


async def _notification_command(device: VirtualDevice, wire: Wire, observed: set[str]) -> bool:
    query: dict[str, Any] = await wire.receive_plist()
    match query.get("Command"):
        case "ObserveNotification" if len(observed) < _MAX_OBSERVED:
            observed.add(str(query.get("Name")))
        case "PostNotification":
            device.notifications.say(str(query.get("Name")))
        case "Shutdown":
            await wire.send_plist({"Command": "ProxyDeath"})
            return False
    return True


async def serve_heartbeat(wire: Wire) -> None:
    """Marco, Polo; ends when the client misses an answer."""
    while True:
        await wire.send_plist({"Command": "Marco", "Interval": HEARTBEAT_INTERVAL_S})
        async with asyncio.timeout(_HEARTBEAT_PATIENCE_S):
            query = await wire.receive_plist()
        if query.get("Command") != "Polo":
            return
        await asyncio.sleep(HEARTBEAT_INTERVAL_S / 2)


async def serve_assertions(device: VirtualDevice, wire: Wire) -> None:
    """assertion_agent: an assertion is held until its connection closes, or its time is over."""
    loop = asyncio.get_running_loop()
    held: set[asyncio.TimerHandle] = set()

    def release(timer: asyncio.TimerHandle) -> None:
        if timer in held:
            held.discard(timer)
            device.assertions -= 1

    def hold(duration_s: float) -> None:
        timer: asyncio.TimerHandle = loop.call_later(duration_s, lambda: release(timer))
        held.add(timer)
        device.assertions += 1

    try:
        while True:
            query = await wire.receive_plist()
            if query.get("CommandKey") == "CommandCreateAssertion" and len(held) < _MAX_ASSERTIONS:
                hold(
                    min(float(query.get("AssertionTimeoutKey") or _LONGEST_ASSERTION_S), _LONGEST_ASSERTION_S)
                )
            await wire.send_plist({"Status": "Success"})
    finally:
        for timer in list(held):
            timer.cancel()
            release(timer)
