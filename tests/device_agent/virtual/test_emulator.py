"""The emulator as a process: its end, its memory of earlier runs, its refusals."""

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.ios_app import BUNDLE_ID
from contract.virtual_devices import SOCKET_VARIABLE
from device_agent.virtual.__main__ import run as run_command
from device_agent.virtual.device.catalogue import model_of, parse_version
from device_agent.virtual.device.record import new_record
from tests.device_agent.virtual.fleet import DEADLINE_S, Fleet, running, short_folder
from tests.device_agent.virtual.mobile_client import (
    documents_of,
    environment,
    instruments_of,
    lockdown_of,
    run,
)


@pytest.fixture
def home() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "v"


def _launch(fleet: Fleet, udid: str) -> int:
    """The app's process on this machine."""

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, instruments_of(lockdown) as (_, control):
            await control.launch(BUNDLE_ID, environment=environment())

    run(scenario())
    return int(fleet.view(udid)["apps"][0]["host_pid"])


def _is_gone(pid: int) -> bool:
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            time.sleep(0.02)
            continue
        return True
    return False


def _temporary() -> set[str]:
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("dynofarm-virtual-")}


def test_an_orderly_end_leaves_no_process_no_socket_and_no_temporary_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _temporary()
    with running("--ios=16.7", home=home) as fleet:
        monkeypatch.setenv(SOCKET_VARIABLE, str(fleet.usbmuxd_socket))
        (device,) = fleet.ask(command="list")["view"]["devices"]
        pid = _launch(fleet, device["udid"])
        (own,) = _temporary() - before
        assert fleet.end() == 0
    assert _is_gone(pid)
    assert not list(home.glob("*.sock"))
    assert own not in _temporary()


def test_apps_end_with_an_emulator_that_is_killed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux ends a child with its parent; elsewhere the app's lease does")
    with running("--ios=16.7", home=home) as fleet:
        monkeypatch.setenv(SOCKET_VARIABLE, str(fleet.usbmuxd_socket))
        pid = _launch(fleet, fleet.ask(command="list")["view"]["devices"][0]["udid"])
        fleet.process.send_signal(signal.SIGKILL)
        fleet.process.wait(DEADLINE_S)
        assert _is_gone(pid)
    left = (home / "app-sockets").readlink()
    assert left.is_dir()
    with running("--ios=16.7", home=home):
        assert not left.exists(), "the next one tidies up"


def test_devices_remember_until_they_are_made_afresh(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOCKET_VARIABLE, str(home / "usbmuxd.sock"))

    async def push(udid: str) -> None:
        async with lockdown_of(udid) as lockdown, await documents_of(lockdown) as files:
            await files.set_file_contents("/Documents/kept", b"kept")

    async def is_kept(udid: str) -> bool:
        async with lockdown_of(udid) as lockdown, await documents_of(lockdown) as files:
            return "kept" in await files.listdir("/Documents")

    with running("--count=2", "--ios=18.5,26.1", home=home) as fleet:
        first, second = [each["udid"] for each in fleet.ask(command="list")["view"]["devices"]]
        run(push(first))
        fleet.fault(second, "lock")
    with running("--count=2", "--ios=18.5,26.1", home=home) as fleet:
        # The same devices, and the same pairing.
        fleet.fault(first, "trust", answer="deny")
        assert run(is_kept(first))
        assert fleet.view(second)["is_locked"]
    with running("--count=2", "--ios=18.5,26.1", "--fresh", home=home) as fleet:
        assert not run(is_kept(first))
        assert not fleet.view(second)["is_locked"]


def test_a_folder_is_served_by_one_emulator(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(home=home) as fleet:
        assert run_command(["--home", str(home)]) == 4
        assert fleet.ask(command="list")["ok"], "the first one goes on"
        assert fleet.usbmuxd_socket.is_socket()
    said = capsys.readouterr().err
    assert "run already" in said
    assert "dynofarm virtual stop" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ios", "12.0"], "not emulated"),
        (["--ios", "new"], "not a version"),
        (["--model", "iPhone1,1"], "iPhone17,1"),
    ],
)
def test_what_cannot_be_emulated_is_refused_before_anything_is_made(
    home: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["--home", str(home), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not home.exists()


def test_a_wrong_number_of_devices_is_a_wrong_command_line(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run_command(["--home", str(home), "--count", "1000"])
    assert "1 to 100" in capsys.readouterr().err


def test_a_damaged_record_is_named_with_its_cure(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = home / "devices" / new_udid() / "device.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert run_command(["--home", str(home)]) == 4
    said = capsys.readouterr().err
    assert "--fresh" in said
    assert str(record) in said
    assert not list(home.glob("*.sock"))


def new_udid() -> str:
    """Of the device that a plain start makes first."""
    return new_record(1, model_of("iPhone17,1"), parse_version("18.5"), 1 << 30, 1 << 30).udid
