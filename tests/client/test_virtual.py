"""`dynofarm virtual`: explanations need no emulator; what is asked of one goes through its control socket."""

import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from client.render_virtual import emulator_text
from contract.virtual_devices import CONTROL_SOCKET, FAULTS, FOLDER, EmulatorView
from tests.client.conftest import Cli
from tests.client.processes import DEADLINE_S, environment, start

UDID = "00008140-0047B92C15000010"
VIEW = {
    "usbmuxd_socket": "u",
    "control_socket": "c",
    "pid": 1,
    "open_sockets": 0,
    "devices": [
        {
            "udid": UDID,
            "device_name": "Virtual iPhone 16 Pro 1",
            "product_type": "iPhone17,1",
            "ios_version": "18.5",
            "device_ids": [3],
            "boot_id": "B",
            "is_locked": True,
            "trust": "accept",
            "developer_mode": True,
            "image_mounted": True,
            "paired_hosts": 0,
            "free_bytes": 8_000_000_000,
            "memory_limit_bytes": 3_000_000_000,
            "battery_percent": 87,
            "temperature_c": 29.0,
            "thermal_state": "nominal",
            "low_power_mode": False,
            "apps": [],
            "installed": [],
            "counters": {
                "connections": 0,
                "labels": [],
                "apps": 0,
                "assertions": 0,
                "tunnels": 0,
                "faults_waiting": 0,
            },
            "played": [],
        }
    ],
}


@contextmanager
def control_socket(home: Path, answer: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """An emulator that keeps what it is asked and always answers the same."""
    folder = home / FOLDER
    folder.mkdir(parents=True)
    asked: list[dict[str, Any]] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / CONTROL_SOCKET))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                asked.append(json.loads(lines.readline()))
                connection.sendall(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked
        thread.join(5.0)


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: the name of a socket has room for about a hundred bytes."""
    return tmp_path_factory.mktemp("h")


def test_every_fault_is_explained_without_an_emulator(cli: Cli) -> None:
    listed = cli("virtual", "faults")
    assert listed.exit_code == 0
    for name in FAULTS:
        assert name in listed.stdout
    (one,) = json.loads(cli("virtual", "faults", "detach", "--json").stdout)
    assert [option["name"] for option in one["options"]] == ["order", "app", "for_s"]


def test_a_fault_that_does_not_exist_is_refused_with_its_nearest_names(cli: Cli) -> None:
    refused = cli("virtual", "fault", UDID, "detch", "--json")
    assert refused.exit_code == 2
    said = json.loads(refused.stdout)
    assert said["error"] == "unknown-fault"
    assert "detach" in said["detail"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["order=first"], "sockets-first"),
        (["speed=1"], "no option 'speed'"),
        (["notice-first"], "NAME=VALUE"),
        (["--at", "soon"], "moments are push:BYTES"),
    ],
)
def test_a_wrong_option_is_refused_before_anybody_is_asked(cli: Cli, arguments: list[str], said: str) -> None:
    refused = cli("virtual", "fault", UDID, "detach", *arguments)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_without_an_emulator_the_command_says_how_to_start_one(cli: Cli) -> None:
    refused = cli("virtual", "list")
    assert refused.exit_code == 2
    assert "dynofarm virtual" in refused.stderr


def test_a_fault_is_sent_with_all_its_options_and_its_moment(cli: Cli, home: Path) -> None:
    with control_socket(home, {"ok": True, "view": VIEW}) as asked:
        done = cli(
            "virtual", "fault", UDID, "fill", "free_bytes=12", "--at", "push:9", DYNOFARM_HOME=str(home)
        )
    assert done.exit_code == 0, done.stderr
    assert asked == [
        {"command": "fault", "udid": UDID, "fault": "fill", "options": {"free_bytes": 12}, "at": "push:9"}
    ]
    assert UDID in done.stdout
    assert "locked" in done.stdout


def test_what_runs_and_what_waits_is_told_in_words() -> None:
    (device,) = VIEW["devices"]
    counters = {**device["counters"], "faults_waiting": 1}
    idle = {**device, "installed": ["org.dynofarm.app"], "counters": counters}
    view = EmulatorView.model_validate({**VIEW, "devices": [device, idle]})
    console = Console(file=io.StringIO(), width=200)
    console.print(emulator_text(view, " --home here"))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for words in (
        "not installed",
        "not running",
        "1 fault waits",
        "dynofarm up --home here",
        "--kind virtual",
    ):
        assert words in shown


def test_what_the_emulator_refuses_is_said(cli: Cli, home: Path) -> None:
    answer = {"ok": False, "error": "unknown-device", "detail": "no virtual device has this UDID"}
    with control_socket(home, answer):
        refused = cli("virtual", "fault", "nobody", "lock", "--json", DYNOFARM_HOME=str(home))
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["error"] == "unknown-device"


def test_devices_are_served_until_they_are_stopped(home: Path) -> None:
    env = environment(home)
    serving = start(["virtual", "--count", "1", "--json"], env)
    try:
        assert serving.stdout is not None
        view = json.loads(serving.stdout.readline())
        assert Path(view["usbmuxd_socket"]).is_socket()
        with start(["virtual", "stop", "--json"], env) as stop:
            stop.communicate(timeout=DEADLINE_S)
            assert stop.returncode == 0
        assert serving.wait(DEADLINE_S) == 0
        assert not Path(view["usbmuxd_socket"]).exists()
    finally:
        if serving.poll() is None:
            serving.kill()
        serving.communicate(timeout=DEADLINE_S)
