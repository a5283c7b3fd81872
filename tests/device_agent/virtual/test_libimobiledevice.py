"""The C tools of libimobiledevice, which share no code with us: they list, pair with and ask a device."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from contract.ios_app import BUNDLE_ID
from tests.device_agent.virtual.fleet import Fleet, short_folder

MISSING = [tool for tool in ("idevice_id", "idevicepair", "ideviceinfo") if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"Debian's libimobiledevice-utils has {MISSING}")


@pytest.fixture(scope="module")
def udid(session_fleet: Fleet) -> str:
    return session_fleet.take("18.5")


@pytest.fixture
def call(fleet: Fleet, udid: str) -> "Call":
    return Call(fleet, udid)


class Call:
    """`call("ideviceinfo", "-k", "ProductType")`: standard output of the tool, about the device."""

    def __init__(self, fleet: Fleet, udid: str) -> None:
        self.address = f"UNIX:{fleet.usbmuxd_socket}"
        self.udid = udid

    def __call__(self, tool: str, *arguments: str) -> str:
        ended = subprocess.run(
            [tool, "-u", self.udid, *arguments] if tool != "idevice_id" else [tool, *arguments],
            capture_output=True,
            text=True,
            timeout=30.0,
            env={**os.environ, "USBMUXD_SOCKET_ADDRESS": self.address},
            check=False,
        )
        assert ended.returncode == 0, ended
        return ended.stdout


def test_the_tools_list_the_device(call: Call, udid: str) -> None:
    assert udid in call("idevice_id", "-l").split()


def test_the_tools_pair_and_validate(call: Call, fleet: Fleet, udid: str) -> None:
    assert "SUCCESS" in call("idevicepair", "pair")
    assert "SUCCESS" in call("idevicepair", "validate")
    assert fleet.view(udid)["paired_hosts"] == 1


def test_the_tools_read_values_in_an_encrypted_session(call: Call, fleet: Fleet, udid: str) -> None:
    call("idevicepair", "pair")
    assert call("ideviceinfo", "-k", "UniqueDeviceID").strip() == udid
    battery = call("ideviceinfo", "-q", "com.apple.mobile.battery", "-k", "BatteryCurrentCapacity")
    assert battery.strip() == str(fleet.view(udid)["battery_percent"])


def test_the_tools_read_registers_and_reports(call: Call, tmp_path: Path) -> None:
    call("idevicepair", "pair")
    assert "CycleCount" in call("idevicediagnostics", "ioregentry", "AppleSmartBattery")
    call("idevicecrashreport", "-k", str(tmp_path))


def test_the_tools_see_the_mounted_image(call: Call) -> None:
    call("idevicepair", "pair")
    assert "ImageSignature" in call("ideviceimagemounter", "-l", "-t", "Personalized")


def test_the_installer_lists_the_app(call: Call) -> None:
    if shutil.which("ideviceinstaller") is None:
        pytest.skip("Debian's ideviceinstaller is not installed")
    call("idevicepair", "pair")
    assert BUNDLE_ID in call("ideviceinstaller", "-l")


def test_an_untrusted_host_is_told_to_ask_the_person(fleet: Fleet) -> None:
    other = fleet.take("27.0")
    fleet.fault(other, "trust", answer="prompt")
    with short_folder() as home:
        ended = subprocess.run(
            ["idevicepair", "-u", other, "pair"],
            capture_output=True,
            text=True,
            timeout=30.0,
            env={**os.environ, "USBMUXD_SOCKET_ADDRESS": f"UNIX:{fleet.usbmuxd_socket}", "HOME": str(home)},
            check=False,
        )
    assert ended.returncode != 0
    assert "trust dialog" in ended.stdout
