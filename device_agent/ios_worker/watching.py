"""Follows one process on the device: exit, footprint, log lines, and the device's conditions, as notices."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from pymobiledevice3.services.dvt.instruments.sysmontap import Sysmontap
from pymobiledevice3.services.os_trace import OsTraceService
from pymobiledevice3.services.power_assertion import PowerAssertionService

from device_agent.ios_worker.faults import WorkerError, detail_of, kind_of
from device_agent.ios_worker.files import Progress
from device_agent.ios_worker.identity import Identity
from device_agent.ios_worker.protocol import (
    ConditionsSeen,
    FootprintSeen,
    LogLineSeen,
    Nothing,
    Notice,
    ProcessAbsent,
    ProcessExited,
    Watch,
    WatchEnded,
    WorkerErrorKind,
)
from device_agent.ios_worker.session import Session

Tell = Callable[[Notice], None]
Part = Literal["exits", "footprint", "log", "conditions"]

# Few attributes: the library decodes every process of the device in Python at each sample.
_ATTRIBUTES: Final = ["pid", "name", "physFootprint", "cpuUsage"]
_KERNEL_PID: Final = 0
_TELLING: Final = re.compile(
    r"memorystatus|jetsam|Saved type|watchdog|8badf00d|killing|terminat|crash", re.IGNORECASE
)
_LINE_CHARS: Final = 1000
_ASSERTION_S: Final = 86_400.0


class Watching:
    """At most one process at a time; a new `watch` ends the one before."""

    def __init__(self, session: Session, identity: Identity, tell: Tell) -> None:
        self._session = session
        self._identity = identity
        self._tell = tell
        self._tasks: list[asyncio.Task[None]] = []

    def exited(self, pid: int, exit_code: int | None, signal: int | None) -> None:
        """From the session: the device told how an observed process ended."""
        self._tell(ProcessExited(pid=pid, exit_code=exit_code, signal=signal))

    async def watch(self, watch: Watch, progress: Progress) -> Nothing:
        """Returns once the device observes the process; the parts start by themselves."""
        await self.stop()
        processes = await self._session.processes()
        await processes.service.startObservingPid_(watch.pid)
        parts: list[tuple[Part, Awaitable[None]]] = [
            ("footprint", self._footprint(watch)),
            ("log", self._log(watch.pid, watch.pid)),
            ("log", self._log(watch.pid, _KERNEL_PID)),
            ("conditions", self._conditions(watch)),
        ]
        self._tasks = [asyncio.create_task(self._part(part, work)) for part, work in parts]
        return Nothing()

    async def stop(self) -> None:
        """End all parts; each closes what it opened."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)

    async def _part(self, part: Part, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            self._tell(WatchEnded(part=part, kind=kind_of(error), detail=detail_of(error)))

    async def _footprint(self, watch: Watch) -> None:
        instruments = await self._session.instruments()
        tap = Sysmontap(instruments, _ATTRIBUTES, [], interval_ms=watch.sample_interval_ms)
        async with tap:
            async for row in tap:
                processes = row.get("Processes")
                if isinstance(processes, dict):
                    self._tell(_sample(watch.pid, processes))
        raise WorkerError(WorkerErrorKind.DISCONNECTED, "the samples ended")

    async def _log(self, pid: int, of_pid: int) -> None:
        """The app's own lines, and the kernel's: it is the kernel that says whom it killed."""
        client = await self._session.lockdown()
        names = re.compile(rf"\b{pid}\b")
        async with OsTraceService(client) as trace:
            async for entry in trace.syslog(pid=of_pid):
                message = str(entry.message)
                if _TELLING.search(message) and (of_pid == pid or names.search(message)):
                    self._tell(_line(entry, message))
        raise WorkerError(WorkerErrorKind.DISCONNECTED, "the log ended")

    async def _conditions(self, watch: Watch) -> None:
        """Also keeps the device awake: the assertion lasts as long as its connection."""
        client = await self._session.lockdown()
        async with PowerAssertionService(client) as power:
            name = f"dynofarm {watch.bundle_id}"
            async with power.create_power_assertion("PreventUserIdleSystemSleep", name, _ASSERTION_S):
                while True:
                    found = await self._identity.conditions(Nothing(), lambda done, total: None)
                    self._tell(ConditionsSeen(conditions=found))
                    await asyncio.sleep(watch.conditions_interval_s)


def _sample(pid: int, processes: dict[Any, Any]) -> FootprintSeen | ProcessAbsent:
    values = processes.get(pid)
    if values is None:
        return ProcessAbsent(pid=pid)
    row = dict(zip(_ATTRIBUTES, values, strict=False))
    cpu = row.get("cpuUsage")
    return FootprintSeen(
        pid=pid,
        footprint_bytes=int(row.get("physFootprint") or 0),
        # The first sample has none: it is a difference.
        cpu_percent=float(cpu) if isinstance(cpu, int | float) else None,
    )


def _line(entry: Any, message: str) -> LogLineSeen:
    stamp = getattr(entry, "timestamp", None)
    return LogLineSeen(
        pid=int(entry.pid),
        process_name=str(entry.image_name).rpartition("/")[2],
        message=message[:_LINE_CHARS],
        clock_s=stamp.timestamp() if stamp is not None else None,
    )
