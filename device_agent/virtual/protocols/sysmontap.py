"""sysmontap: samples of all processes of a device, at a pace that the device may not keep."""

import asyncio
import time
from typing import Any, Final

from device_agent.virtual.device.process_table import DeviceProcess
from device_agent.virtual.protocols.dtx import Channel, TapMessage, on_invoke

PROCESS_ATTRIBUTES: Final = (
    *("memVirtualSize", "cpuUsage", "ctxSwitch", "intWakeups", "physFootprint", "memResidentSize", "memAnon"),
    *("memPurgeable", "memCompressed", "pid", "ppid", "name", "uid", "threadCount", "diskBytesRead"),
    *("diskBytesWritten", "cpuTotalUser", "cpuTotalSystem", "powerScore", "appSleep", "startAbsTime"),
    *("procAge", "uniqueID"),
)
SYSTEM_ATTRIBUTES: Final = (
    *("vmFreeCount", "vmUsedCount", "vmWireCount", "vmCompressorPageCount", "vmIntPageCount"),
    *("physMemSize", "diskBytesRead", "diskBytesWritten", "netBytesIn", "netBytesOut"),
)
_SHORTEST_INTERVAL_S: Final = 0.01
_PAGE_BYTES: Final = 16384
_PROCESS_ROWS: Final = 7


class SysmonTap(Channel):
    """Configured once, started, stopped. The first sample has no cpuUsage."""

    IDENTIFIER = "com.apple.instruments.server.services.sysmontap"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._config: dict[str, Any] = {}
        self._sampling: asyncio.Task[None] | None = None

    @on_invoke("setConfig:")
    async def set_config(self, config: dict[str, Any]) -> None:
        """Attributes and interval of what follows."""
        self._config = dict(config)

    @on_invoke("start")
    async def start(self) -> None:
        self._stop()
        self._sampling = self.in_background(self._sample())

    @on_invoke("stop")
    async def stop(self) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()

    async def _sample(self) -> None:
        # The first message only acknowledges the configuration.
        await self.send_notification(TapMessage({"k": 0}))
        device = self.host.device
        first = True
        while True:
            await self.send_notification(TapMessage([self._rows(first=first)]))
            first = False
            asked_s = float(self._config.get("sampleInterval", 5e8)) / 1e9
            await asyncio.sleep(max(asked_s, device.sample_interval_floor_s, _SHORTEST_INTERVAL_S))

    def _rows(self, *, first: bool) -> dict[str, Any]:
        device = self.host.device
        names = [str(name) for name in self._config.get("procAttrs", ())]
        processes = device.processes.all()
        now_ns = time.monotonic_ns()
        load = sum(process.cpu_percent for process in processes)
        return {
            "Type": _PROCESS_ROWS,
            "StartMachAbsTime": now_ns,
            "EndMachAbsTime": now_ns,
            "Processes": {each.pid: _values(each, names, first=first) for each in processes},
            "CPUCount": 6,
            "EnabledCPUs": 6,
            "SystemCPUUsage": {
                "CPU_TotalLoad": load,
                "CPU_UserLoad": load * 0.8,
                "CPU_SystemLoad": load * 0.2,
                "CPU_NiceLoad": 0.0,
            },
            "System": self._system_values(device, processes),
        }

    def _system_values(self, device: Any, processes: list[DeviceProcess]) -> list[int]:
        total_bytes = device.record.model.memory_bytes
        used_bytes = sum(process.footprint_bytes for process in processes)
        known = {
            "physMemSize": total_bytes,
            "vmUsedCount": used_bytes // _PAGE_BYTES,
            "vmFreeCount": max(0, total_bytes - used_bytes) // _PAGE_BYTES,
        }
        return [known.get(str(name), 0) for name in self._config.get("sysAttrs", ())]


def _values(process: DeviceProcess, names: list[str], *, first: bool) -> list[Any]:
    known: dict[str, Any] = {
        "pid": process.pid,
        "ppid": 1 if process.pid > 1 else 0,
        "name": process.name,
        "uid": 501 if process.bundle_id else 0,
        "physFootprint": process.footprint_bytes,
        "memResidentSize": process.footprint_bytes,
        "memAnon": process.footprint_bytes,
        "cpuUsage": None if first else process.cpu_percent,
        "threadCount": process.threads,
        "procAge": int(process.age_s * 1e9),
        "uniqueID": process.pid,
    }
    return [known.get(name, 0) for name in names]
