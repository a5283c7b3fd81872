"""Pairing, sessions, values and the service set, through unmodified pymobiledevice3."""

from typing import Any

import pytest
from pymobiledevice3.exceptions import (
    InvalidServiceError,
    NotPairedError,
    PairingDialogResponsePendingError,
    PasswordRequiredError,
    UserDeniedPairingError,
)

from tests.device_agent.virtual.fleet import Fleet
from tests.device_agent.virtual.mobile_client import lockdown_of, run

_TUNNEL = "com.apple.internal.devicecompute.CoreDeviceProxy"
_INSTRUMENTS = "com.apple.instruments.remoteserver.DVTSecureSocketProxy"


async def _starts(lockdown: Any, service: str) -> bool:
    try:
        connection = await lockdown.start_lockdown_service(service)
    except InvalidServiceError:
        return False
    await connection.close()
    return True


def test_a_device_pairs_says_what_it_is_and_that_it_is_virtual(fleet: Fleet) -> None:
    udid = fleet.take("18.5")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            assert lockdown.paired
            assert lockdown.product_version == "18.5"
            values = lockdown.all_values
            assert values["UniqueDeviceID"] == udid
            assert int(udid.partition("-")[2], 16) == values["UniqueChipID"]
            assert values["DynofarmVirtual"] is True
            assert await lockdown.get_developer_mode_status()

    run(scenario())
    assert fleet.view(udid)["paired_hosts"] == 1


def test_a_second_session_uses_the_kept_pairing(fleet: Fleet) -> None:
    udid = fleet.take("18.5")

    async def scenario() -> None:
        async with lockdown_of(udid):
            pass
        fleet.fault(udid, "trust", answer="deny")
        async with lockdown_of(udid) as lockdown:
            assert lockdown.paired

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "error"),
    [("prompt", PairingDialogResponsePendingError), ("deny", UserDeniedPairingError)],
)
def test_the_person_has_the_say(fleet: Fleet, answer: str, error: type[Exception]) -> None:
    udid = fleet.take("18.5")
    fleet.fault(udid, "trust", answer=answer)

    async def refused() -> None:
        with pytest.raises(error):
            async with lockdown_of(udid, pair_timeout=0):
                pass

    async def accepted() -> None:
        async with lockdown_of(udid, pair_timeout=0) as lockdown:
            assert lockdown.paired

    run(refused())
    fleet.fault(udid, "trust", answer="accept")
    run(accepted())


def test_a_locked_device_does_not_pair(fleet: Fleet) -> None:
    udid = fleet.take("18.5")
    fleet.fault(udid, "lock")

    async def scenario() -> None:
        with pytest.raises(PasswordRequiredError):
            async with lockdown_of(udid, pair_timeout=0):
                pass

    run(scenario())


def test_a_revoked_pairing_ends_sessions_and_is_not_known_again(fleet: Fleet) -> None:
    udid = fleet.take("18.5")

    async def scenario() -> None:
        async with lockdown_of(udid):
            assert fleet.view(udid)["counters"]["connections"] == 1
            fleet.fault(udid, "untrust")
            fleet.wait_for(udid, lambda device: device["counters"]["connections"] == 0)
        async with lockdown_of(udid, autopair=False) as stranger:
            assert not stranger.paired
            with pytest.raises(NotPairedError):
                await stranger.start_lockdown_service("com.apple.afc")

    run(scenario())


def test_what_needs_an_unlocked_device_is_refused_while_it_is_locked(fleet: Fleet) -> None:
    udid = fleet.take("18.5")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            fleet.fault(udid, "lock")
            for service in ("com.apple.afc", "com.apple.mobile.house_arrest"):
                with pytest.raises(PasswordRequiredError):
                    await lockdown.start_lockdown_service(service)
            assert await _starts(lockdown, "com.apple.mobile.diagnostics_relay")
            fleet.fault(udid, "unlock")
            assert await _starts(lockdown, "com.apple.afc")

    run(scenario())


@pytest.mark.parametrize(
    ("version", "tunnel", "instruments"),
    [
        ("16.7", False, True),
        ("17.2", False, False),
        ("17.5", True, False),
        ("18.5", True, False),
        ("26.1", True, False),
        ("27.0", True, False),
    ],
)
def test_the_version_decides_how_developer_tools_are_reached(
    fleet: Fleet, version: str, tunnel: bool, instruments: bool
) -> None:
    udid = fleet.take(version)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            assert await _starts(lockdown, _TUNNEL) is tunnel
            assert await _starts(lockdown, _INSTRUMENTS) is instruments

    run(scenario())


@pytest.mark.parametrize(("fault", "options"), [("image", {}), ("developer-mode", {"mode": "off"})])
def test_without_image_or_developer_mode_there_are_no_developer_services(
    fleet: Fleet, fault: str, options: dict[str, str]
) -> None:
    udid = fleet.take("16.7")
    fleet.fault(udid, fault, **options)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            assert not await _starts(lockdown, _INSTRUMENTS)
            assert await _starts(lockdown, "com.apple.afc")

    run(scenario())


def test_battery_disk_and_heat_are_told_as_they_were_set(fleet: Fleet) -> None:
    udid = fleet.take("18.5")
    fleet.fault(udid, "battery", level_percent=11, is_charging=False)
    fleet.fault(udid, "fill", free_bytes=123_457)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            battery = await lockdown.get_value("com.apple.mobile.battery")
            assert battery["BatteryCurrentCapacity"] == 11
            assert battery["BatteryIsCharging"] is False
            assert await lockdown.get_value("com.apple.disk_usage", "AmountDataAvailable") == 123_457

    run(scenario())


def test_a_restart_gives_new_numbers_a_lock_and_no_image(fleet: Fleet) -> None:
    udid = fleet.take("18.5")
    before = fleet.view(udid)
    fleet.fault(udid, "reboot", downtime_s=0.1, clock_jump_s=3600.0)
    after = fleet.view(udid)
    assert after["device_ids"] > before["device_ids"]
    assert after["boot_id"] != before["boot_id"]
    assert after["is_locked"]
    assert not after["image_mounted"]
