"""All iPhones of this host: follows usbmuxd, gives each device its monitor, and names them to the agent."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from contract.ids import DeviceId
from device_agent.floor.settings import AgentSettings
from device_agent.targets.ios.builds import BuildShelf
from device_agent.targets.ios.device_monitor import DeviceMonitor
from device_agent.targets.ios.model_files import ModelDigests
from device_agent.targets.ios.presence import presences
from device_agent.targets.ios.target import IosTarget
from device_agent.targets.ios.usbmux import MuxList, MuxWatch
from device_agent.targets.port import Target

_log = structlog.get_logger(__name__)


class IosFleet:
    """Implements devices.port.Fleet. It opens no service of any device: that is the workers' part."""

    def __init__(self, settings: AgentSettings) -> None:
        """Needs a running loop; connects nothing before `run`."""
        self._settings = settings
        self._shelf = BuildShelf(settings.builds_folder)
        self._digests = ModelDigests()
        self._starts = asyncio.Semaphore(max(2, os.cpu_count() or 1))
        self._monitors: dict[DeviceId, DeviceMonitor] = {}
        self._targets: dict[DeviceId, IosTarget] = {}
        self._tasks: dict[DeviceId, asyncio.Task[None]] = {}
        self._trust_changes = 0
        self._found: Callable[[Target], None] = lambda target: None

    async def run(self, found: Callable[[Target], None]) -> None:
        """Until cancelled; every worker is down then."""
        self._found = found
        for udid in list(self._targets):
            self._begin(udid)
        try:
            await MuxWatch(self._settings.usbmux_address, self._changed).run()
        finally:
            tasks = list(self._tasks.values())
            self._tasks.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def target(self, device_id: DeviceId) -> Target | None:
        """Of an attempt from an earlier life; its device may be away."""
        known = self._record_folder / f"{device_id}.json"
        if device_id in self._targets or known.is_file():
            return self._target(device_id)
        return None

    @property
    def worker_pids(self) -> dict[DeviceId, int]:
        """Of the workers that run, for people and tests."""
        pids = {udid: monitor.worker_pid for udid, monitor in self._monitors.items()}
        return {udid: pid for udid, pid in pids.items() if pid is not None}

    @property
    def _record_folder(self) -> Path:
        return self._settings.agent_home / "ios" / "devices"

    def _changed(self, listed: MuxList) -> None:
        present = presences(listed.entries)
        trust_changed = listed.trust_changes != self._trust_changes
        self._trust_changes = listed.trust_changes
        for udid in present.keys() - self._monitors.keys():
            self._target(udid)
            _log.info("device_found", device_id=udid)
        for udid, monitor in self._monitors.items():
            monitor.seen(present.get(udid), trust_changed=trust_changed)
        for udid in present:
            self._begin(udid)
            self._found(self._targets[udid])

    def _target(self, udid: DeviceId) -> IosTarget:
        if udid not in self._targets:
            monitor = DeviceMonitor(udid, self._settings, self._shelf, self._starts)
            self._monitors[udid] = monitor
            self._targets[udid] = IosTarget(monitor, self._digests)
        return self._targets[udid]

    def _begin(self, udid: DeviceId) -> None:
        if udid not in self._tasks:
            self._tasks[udid] = asyncio.create_task(self._monitors[udid].run(), name=f"attend-{udid}")
