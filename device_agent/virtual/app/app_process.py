"""An app as a child process of the emulator: its output, its footprint, its end."""

import asyncio
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Final

from device_agent.virtual.app.host_usage import HostUsage, read_usage
from device_agent.virtual.device.process_table import ProcessExit

SAMPLE_INTERVAL_S: Final = 0.03
"""How often a footprint is compared with the limit: a real device does it at every allocation."""
FOREGROUND_BAND: Final = 100
_MAX_LOG_BYTES: Final = 16 << 20
_MAX_LINE_BYTES: Final = 64 * 1024
_END_TIMEOUT_S: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None

Report = Callable[["AppProcess"], Awaitable[None]]


def _before_exec(parent: int, largest_file_bytes: int) -> None:
    """In the child: it ends with the emulator, also when that is killed; no core file, no endless file."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # It was killed before we asked to be told.
            os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if hard == resource.RLIM_INFINITY or hard > largest_file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, hard))


class AppProcess:
    """One launch of an app. pid is the device's, host_pid this machine's."""

    def __init__(self, pid: int, name: str, bundle_id: str) -> None:
        self.pid = pid
        self.name = name
        self.bundle_id = bundle_id
        self.band = FOREGROUND_BAND
        self.peak_bytes = 0
        self.largest_file_bytes = 1 << 40
        """A bound for what it writes here, where nobody asks the device's disk."""
        self.killed_for = ""
        """Why the device killed it: jetsam, watchdog; "" when it did not."""
        self.exit: ProcessExit | None = None
        self.ended = asyncio.Event()
        self.on_line: Callable[[str], None] = lambda _: None
        self.on_sample: Callable[[int], None] = lambda _: None
        self._started_s = time.monotonic()
        self._usage = HostUsage(0, 0, 0.0, 1)
        self._cpu_seen = (time.monotonic(), 0.0, 0.0)
        self._child: asyncio.subprocess.Process | None = None

    @property
    def footprint_bytes(self) -> int:
        """As of the last sample."""
        return self._usage.footprint_bytes

    @property
    def threads(self) -> int:
        """As of the last sample."""
        return self._usage.threads

    @property
    def age_s(self) -> float:
        """Since its launch."""
        return time.monotonic() - self._started_s

    @property
    def cpu_percent(self) -> float:
        """Of one core, over at least the last quarter of a second."""
        seen_s, seen_cpu_s, percent = self._cpu_seen
        now_s = time.monotonic()
        if now_s - seen_s >= 0.25:
            percent = 100.0 * (self._usage.cpu_s - seen_cpu_s) / (now_s - seen_s)
            self._cpu_seen = (now_s, self._usage.cpu_s, percent)
        return percent

    @property
    def host_pid(self) -> int:
        """0 before its start."""
        return self._child.pid if self._child is not None else 0

    async def start(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        """Starts the child in `folder`; OSError when it cannot be started."""
        self._child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
            limit=_MAX_LINE_BYTES,
            preexec_fn=partial(_before_exec, os.getpid(), self.largest_file_bytes),
        )

    async def watch(self, log: Path | None, report: Report) -> None:
        """Until the end of the child: samples its footprint, keeps its output, then reports how it ended."""
        child = self._child
        assert child is not None  # only called after start
        sampling = asyncio.create_task(self._sample())
        reading = asyncio.create_task(self._read_output(child, log))
        code = await child.wait()
        sampling.cancel()
        # A grandchild may keep the pipe open: the app is over all the same.
        await asyncio.wait((reading,), timeout=1.0)
        reading.cancel()
        await asyncio.gather(sampling, reading, return_exceptions=True)
        self._kill_group()
        is_signal = code < 0
        self.exit = ProcessExit(
            self.pid, self.name, None if is_signal else code, -code if is_signal else None
        )
        try:
            await report(self)
        finally:
            self.ended.set()

    def send(self, number: int) -> None:
        """Sends a signal; nothing happens when it has ended."""
        if self._child is not None and self._child.returncode is None:
            with suppress(ProcessLookupError):
                self._child.send_signal(number)

    async def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends the signal and waits for the end, SIGKILL after 10 s."""
        self.send(number)
        try:
            await asyncio.wait_for(self.ended.wait(), _END_TIMEOUT_S)
        except TimeoutError:
            self.send(signal.SIGKILL)
            await self.ended.wait()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.host_pid, signal.SIGKILL)

    async def _sample(self) -> None:
        while True:
            usage = read_usage(self.host_pid)
            if usage is not None:
                self._usage = usage
                self.peak_bytes = max(self.peak_bytes, usage.footprint_bytes)
                self.on_sample(usage.footprint_bytes)
            await asyncio.sleep(SAMPLE_INTERVAL_S)

    async def _read_output(self, child: asyncio.subprocess.Process, log: Path | None) -> None:
        assert child.stdout is not None  # it was asked for
        file = _opened(log)
        room_bytes = _MAX_LOG_BYTES
        try:
            while True:
                try:
                    line = await child.stdout.readuntil(b"\n")
                except asyncio.IncompleteReadError as end:
                    line = end.partial
                except asyncio.LimitOverrunError as long:
                    line = await child.stdout.read(long.consumed)
                if not line:
                    return
                if file is not None and room_bytes > 0:
                    file.write(line[:room_bytes])
                    file.flush()
                    room_bytes -= len(line)
                self.on_line(line.decode(errors="replace").rstrip("\n"))
        finally:
            if file is not None:
                file.close()


def _opened(log: Path | None) -> IO[bytes] | None:
    """The app's log; an app whose folder is missing runs without one and says itself what is wrong."""
    try:
        return log.open("ab") if log is not None else None
    except OSError:
        return None
