"""The emulator of iPhones as a process, with its control socket: the far side of the real device path."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from contract.virtual_devices import EmulatorView, VirtualDeviceView

ROOT = Path(__file__).resolve().parents[2]
FAKE_APP = (sys.executable, str(ROOT / "tests/fakes/runtime.py"))
REAL_APP = (sys.executable, "-m", "runtime")


class EmulatedDevices:
    """`python -m device_agent.virtual` in a folder of its own; gone with everything it started at the end."""

    def __init__(self, home: Path, ios: Sequence[str], program: Sequence[str] = FAKE_APP) -> None:
        self.home = home
        self._ios = ios
        self._program = program
        self._child: subprocess.Popen[bytes] | None = None
        self._view: EmulatorView | None = None

    def __enter__(self) -> "EmulatedDevices":
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "emulator.log").open("ab") as log:
            self._child = subprocess.Popen(
                [
                    *(sys.executable, "-m", "device_agent.virtual", "--home", str(self.home), "--fresh"),
                    *("--count", str(len(self._ios)), "--ios", ",".join(self._ios)),
                    *("--program", json.dumps(list(self._program))),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "FAKE_RUNTIME_MIRROR": str(self.home)},
            )
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line, (self.home / "emulator.log").read_text()[-2000:]
        self._view = EmulatorView.model_validate_json(line)
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.terminate()
            try:
                self._child.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            if self._child.stdout is not None:
                self._child.stdout.close()

    @property
    def usbmuxd_socket(self) -> str:
        assert self._view is not None
        return self._view.usbmuxd_socket

    @property
    def udids(self) -> list[str]:
        assert self._view is not None
        return [device.udid for device in self._view.devices]

    def view(self, udid: str) -> VirtualDeviceView:
        answer = self._ask({"command": "list"})
        found = EmulatorView.model_validate(answer["view"])
        return next(device for device in found.devices if device.udid == udid)

    def written(self, attempt_id: str) -> list[bytes]:
        """Every whole line that the app wrote, also after the agent has removed its folder."""
        try:
            text = (self.home / f"{attempt_id}.jsonl").read_bytes()
        except FileNotFoundError:
            return []
        return text[: text.rfind(b"\n") + 1].splitlines()

    def fault(self, udid: str, fault: str, at: str | None = None, **options: Any) -> None:
        answer = self._ask({"command": "fault", "udid": udid, "fault": fault, "options": options, "at": at})
        assert answer["ok"], answer

    def wait_until(
        self, udid: str, holds: Callable[[VirtualDeviceView], bool], timeout_s: float = 20.0
    ) -> VirtualDeviceView:
        end_s = time.monotonic() + timeout_s
        while not holds(view := self.view(udid)):
            assert time.monotonic() < end_s, view
            time.sleep(0.05)
        return view

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._view is not None
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(self._view.control_socket)
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        return answer
