"""Processes of one device: those of the system, which only exist in lists, and the apps."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from device_agent.virtual.device.topics import Topic

_MIB: Final = 1 << 20
_FIRST_APP_PID: Final = 400


class DeviceProcess(Protocol):
    """What lists and reports tell of a process."""

    @property
    def pid(self) -> int:
        """The device's own number, not the host's."""
        ...

    @property
    def name(self) -> str: ...

    @property
    def bundle_id(self) -> str:
        """ "" for what is not an app."""
        ...

    @property
    def footprint_bytes(self) -> int:
        """Charged to it now."""
        ...

    @property
    def peak_bytes(self) -> int:
        """The largest so far."""
        ...

    @property
    def cpu_percent(self) -> float:
        """Of one core, since the last look."""
        ...

    @property
    def age_s(self) -> float:
        """Since its start."""
        ...

    @property
    def threads(self) -> int: ...

    @property
    def band(self) -> int:
        """Its jetsam priority; what has less goes first."""
        ...


@dataclass(slots=True)
class SystemProcess:
    """A process that does nothing but be listed, and die when memory is short."""

    pid: int
    name: str
    footprint_bytes: int
    band: int
    states: tuple[str, ...] = ("daemon", "idle")
    bundle_id: str = ""
    cpu_percent: float = 0.1
    threads: int = 4
    age_s: float = 3600.0

    @property
    def peak_bytes(self) -> int:
        """A little more than now."""
        return self.footprint_bytes + self.footprint_bytes // 8


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How an app ended: an exit code or a signal."""

    pid: int
    name: str
    code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class Output:
    """A line that an app wrote to standard output or error."""

    pid: int
    line: str


def _system_processes() -> Iterator[SystemProcess]:
    yield SystemProcess(0, "kernel_task", 410 * _MIB, 190)
    yield SystemProcess(1, "launchd", 12 * _MIB, 190)
    yield SystemProcess(34, "SpringBoard", 184 * _MIB, 160, states=("active",))
    yield SystemProcess(41, "backboardd", 42 * _MIB, 180)
    yield SystemProcess(63, "lockdownd", 7 * _MIB, 180)
    yield SystemProcess(77, "mediaserverd", 26 * _MIB, 120)
    yield SystemProcess(88, "locationd", 18 * _MIB, 120)
    yield SystemProcess(214, "osanalyticshelper", 9 * _MIB, 0)
    yield SystemProcess(301, "MobileSafari", 148 * _MIB, 0, ("suspended",), "com.apple.mobilesafari")
    yield SystemProcess(322, "MobileMail", 61 * _MIB, 40, ("suspended",), "com.apple.mobilemail")


class ProcessTable:
    """By pid. Exits and output are told to whoever listens."""

    def __init__(self) -> None:
        self.exits: Topic[ProcessExit] = Topic()
        self.output: Topic[Output] = Topic()
        self._processes: dict[int, DeviceProcess] = {}
        self._pids = itertools.count(_FIRST_APP_PID)
        self.restart()

    def restart(self) -> None:
        """As after a boot: the system's processes, and numbers from the beginning: pids come again."""
        self._processes = {each.pid: each for each in _system_processes()}
        self._pids = itertools.count(_FIRST_APP_PID)

    def new_pid(self) -> int:
        return next(self._pids)

    def add(self, process: DeviceProcess) -> None:
        self._processes[process.pid] = process

    def remove(self, pid: int) -> None:
        self._processes.pop(pid, None)

    def get(self, pid: int) -> DeviceProcess | None:
        """None when there is none of this number."""
        return self._processes.get(pid)

    def all(self) -> list[DeviceProcess]:
        return [self._processes[pid] for pid in sorted(self._processes)]

    def system(self) -> list[SystemProcess]:
        return [each for each in self.all() if isinstance(each, SystemProcess)]
