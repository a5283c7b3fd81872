"""A controller as a process of its own, on loopback with a database that is empty at first."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import psutil

READY_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 30.0


class ControllerNotReadyError(Exception):
    """The controller did not answer in time; the message names its log."""


@dataclass(frozen=True, slots=True)
class ControllerProcess:
    """Running and ready."""

    url: str
    database_url: str
    admin_token: str
    process: psutil.Process

    def processor_s(self) -> float:
        """Processor time so far, in user and kernel mode."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident_mb(self) -> float:
        """Resident memory now."""
        return float(self.process.memory_info().rss) / 2**20


@contextmanager
def running_controller(home: Path, database_url: str = "") -> Iterator[ControllerProcess]:
    """Migrated, started, ready; stopped at the end. database_url empty: SQLite in the home."""
    database_url = database_url or f"sqlite:///{home / 'controller.sqlite'}"
    variables = {
        **os.environ,
        "DYNOFARM_HOME": str(home),
        "DYNOFARM_DATABASE_URL": database_url,
        "DYNOFARM_BROKER_URL": "memory://",
        "DYNOFARM_DASHBOARD": "false",
    }
    command = [sys.executable, "-m", "controller"]
    for word in ("migrate", "admin-token"):
        subprocess.run([*command, word], env=variables, check=True, stderr=subprocess.DEVNULL)
    port = _free_port()
    log = home / "controller.log"
    with log.open("wb") as file:
        process = subprocess.Popen([*command, "--port", str(port)], env=variables, stdout=file, stderr=file)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, log)
        token = (home / "admin-token").read_text(encoding="ascii").strip()
        yield ControllerProcess(url, database_url, token, psutil.Process(process.pid))
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(url: str, log: Path) -> None:
    deadline_s = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline_s:
        try:
            if httpx.get(f"{url}/ready").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise ControllerNotReadyError(f"{url} is not ready after {READY_LIMIT_S:.0f} s; see {log}")
