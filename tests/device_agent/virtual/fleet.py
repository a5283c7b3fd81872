"""A process of emulated devices for a session of tests: each takes a device that no other has used."""

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
APP = (sys.executable, str(REPOSITORY / "tests" / "fakes" / "virtual_app.py"))
DEADLINE_S = 20.0


class Fleet:
    """The emulator's process, its control socket, and who has been taken."""

    def __init__(self, home: Path, *arguments: str, program: tuple[str, ...] = APP) -> None:
        self.home = home
        self.usbmuxd_socket = home / "usbmuxd.sock"
        self._taken: set[str] = set()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "device_agent.virtual", "--home", str(home)),
                *(f"--program={json.dumps(program)}", *arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )

    def wait_until_ready(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], DEADLINE_S)[0], "the emulator says nothing"
        line = self.process.stdout.readline()
        assert line, f"the emulator ended with {self.process.wait(DEADLINE_S)}"
        return json.loads(line)

    def end(self) -> int:
        """Its exit code after SIGTERM."""
        self.process.terminate()
        code = self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def ask(self, **request: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE_S)
            connection.connect(str(self.home / "control.sock"))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                return json.loads(lines.readline())

    def view(self, udid: str) -> dict[str, Any]:
        answer = self.ask(command="list")
        return next(device for device in answer["view"]["devices"] if device["udid"] == udid)

    def fault(self, udid: str, fault: str, at: str | None = None, **options: Any) -> dict[str, Any]:
        """Plays it; the device afterwards."""
        answer = self.ask(command="fault", udid=udid, fault=fault, options=options, at=at)
        assert answer["ok"], answer
        return next(device for device in answer["view"]["devices"] if device["udid"] == udid)

    def take(self, version: str) -> str:
        """UDID of a device of this version that no test has had."""
        for device in self.ask(command="list")["view"]["devices"]:
            if device["ios_version"] == version and device["udid"] not in self._taken:
                self._taken.add(device["udid"])
                return str(device["udid"])
        raise AssertionError(f"no device of {version} is left; make more in conftest.py")

    def wait_for(self, udid: str, what: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The device, once `what` holds of it."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not what(device := self.view(udid)):
            assert time.monotonic() < deadline_s, device
            time.sleep(0.02)
        return device


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="dyn-") as name:
        yield Path(name)


@contextmanager
def running(*arguments: str, home: Path, program: tuple[str, ...] = APP) -> Iterator[Fleet]:
    """A fleet of its own for a test, ended at the end."""
    fleet = Fleet(home, *arguments, program=program)
    try:
        fleet.wait_until_ready()
        yield fleet
    finally:
        if fleet.process.poll() is None:
            fleet.end()
        elif fleet.process.stdout is not None:
            fleet.process.stdout.close()
