"""The log of one device, as os_trace shows it."""

import itertools
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from device_agent.virtual.device.record import DeviceRecord
from device_agent.virtual.device.topics import Topic

_KEPT_LINES: Final = 500
# Lines that come out of another image than that of their process.
_SENDERS: Final = {"osanalyticshelper": "OSAnalytics"}
DAEMON_PIDS: Final = {"kernel": 0, "launchd": 1, "lockdownd": 63, "osanalyticshelper": 214, "SpringBoard": 34}


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line. process and sender are names of images."""

    at: datetime
    pid: int
    process: str
    message: str
    subsystem: str = ""
    category: str = ""
    sender: str = ""
    number: int = 0


class DeviceLog(Topic[LogLine]):
    """Keeps the last lines, for clients that ask for what was before."""

    def __init__(self, record: DeviceRecord) -> None:
        super().__init__()
        self._record = record
        self._numbers = itertools.count(1)
        self.kept: deque[LogLine] = deque(maxlen=_KEPT_LINES)

    def write(self, process: str, pid: int, message: str, subsystem: str = "") -> None:
        """One line by a process of the device."""
        line = LogLine(
            self._record.now(),
            pid,
            process,
            message,
            subsystem=subsystem,
            category="default" if subsystem else "",
            sender=_SENDERS.get(process, process),
            number=next(self._numbers),
        )
        self.kept.append(line)
        super().say(line)

    def say_as(self, daemon: str, message: str) -> None:
        """One line by a process of the system."""
        self.write(daemon, DAEMON_PIDS.get(daemon, 1), message)
