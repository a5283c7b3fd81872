"""The real process of `dynofarm up`: it starts, refuses a second one, and takes everything down in time."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from contract.rest import DevicePage
from controller.embedded import EXIT_USAGE, main

START_DEADLINE_S = 90.0
STOP_DEADLINE_S = 40.0


class Embedded:
    """One process on a home of its own."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        self.log = home.parent / f"{home.name}-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "controller.embedded", "--home", str(home), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def ready(self) -> "Embedded":
        """Wait until it says where it is."""
        _wait(lambda: (self.home / "controller.json").exists(), START_DEADLINE_S, self._alive)
        return self

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.home / "controller.json").read_text())
        return state

    def get(self, path: str) -> httpx.Response:
        token = (self.home / "admin-token").read_text().strip()
        return httpx.get(self.state["url"] + path, headers={"Authorization": f"Bearer {token}"}, timeout=20)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit code after the signal."""
        self.process.send_signal(number)
        return self.process.wait(STOP_DEADLINE_S)

    def _alive(self) -> None:
        assert self.process.poll() is None, self.log.read_text()


def _wait(done: Callable[[], bool], deadline_s: float, check: Callable[[], None] = lambda: None) -> None:
    deadline = time.monotonic() + deadline_s
    while not done():
        check()
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Embedded]]:
    started: list[Embedded] = []

    def begin(*arguments: str, home: str = "home") -> Embedded:
        started.append(Embedded(tmp_path / home, "--port", "0", *arguments))
        return started[-1]

    yield begin
    for embedded in started:
        if embedded.process.poll() is None:
            embedded.process.kill()
            embedded.process.wait(STOP_DEADLINE_S)


Start = Callable[..., Embedded]


def test_it_serves_refuses_a_second_one_and_stops_clean(start: Start) -> None:
    embedded = start("--no-agent").ready()
    assert embedded.state["pid"] == embedded.process.pid
    assert embedded.get("/ready").json()["status"] == "ok"
    assert embedded.get("/v1/runs").status_code == 200
    for name in ("admin-token", "session-secret"):
        assert stat.S_IMODE((embedded.home / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE(embedded.home.stat().st_mode) == 0o700
    second = start("--no-agent")
    assert second.process.wait(START_DEADLINE_S) == 2
    said = second.log.read_text()
    assert embedded.state["url"] in said
    assert "--home" in said
    assert embedded.get("/health").status_code == 200
    assert embedded.stop(signal.SIGINT) == 0
    assert not (embedded.home / "controller.json").exists()


def test_a_taken_port_is_said_so_at_once_with_the_next_step(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = Embedded(tmp_path / "home", "--no-agent", "--port", str(port))
        assert refused.process.wait(START_DEADLINE_S) == 2
    said = refused.log.read_text()
    assert f"port {port} is in use" in said
    assert "--port" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        (("DYNOFARM_LEASE_TTL_S", "soon"), "valid number"),
        (("DYNOFARM_SESSION_SECRET", "no base64!"), "openssl rand -base64 32"),
        (("DYNOFARM_SESSION_SECRET", "c2hvcnQ="), "it has 5 bytes, at least 32"),
    ],
)
def test_a_wrong_setting_is_named_and_not_shown(
    setting: tuple[str, str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    variable, value = setting
    monkeypatch.setenv(variable, value)
    home = tmp_path / "home"
    assert main(["--home", str(home), "--no-agent"]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert said.startswith(f"controller: {variable}: ")
    assert problem in said
    assert value not in said
    assert not home.exists()


def test_after_a_kill_the_next_one_starts_with_the_same_token(start: Start) -> None:
    first = start("--no-agent").ready()
    token = (first.home / "admin-token").read_text()
    first.process.kill()
    first.process.wait(STOP_DEADLINE_S)
    (first.home / "controller.json").unlink()
    second = start("--no-agent").ready()
    assert (second.home / "admin-token").read_text() == token
    assert second.get("/v1/runs").status_code == 200
    assert second.stop(signal.SIGTERM) == 0


def test_its_agent_brings_this_machine_and_goes_down_with_it(start: Start) -> None:
    embedded = start().ready()
    children = psutil.Process(embedded.process.pid).children

    def devices() -> list[Any]:
        return DevicePage.model_validate(embedded.get("/v1/devices").json()).devices

    _wait(lambda: bool(devices()), START_DEADLINE_S)
    (agent,) = children()
    assert "device_agent" in agent.cmdline()
    os.kill(agent.pid, signal.SIGKILL)
    # It comes back by itself, as the same agent with the same device.
    known = devices()[0].device_id
    _wait(lambda: any(child.pid != agent.pid for child in children()), START_DEADLINE_S)
    assert [device.device_id for device in devices()] == [known]
    descendants = children(recursive=True)
    assert embedded.stop(signal.SIGINT) == 0
    _, alive = psutil.wait_procs(descendants, timeout=5)
    assert alive == []
