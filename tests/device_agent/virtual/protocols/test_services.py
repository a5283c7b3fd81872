"""The smaller services through unmodified pymobiledevice3: heat, restart, notifications, images."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pymobiledevice3.exceptions import ConnectionTerminatedError, DeveloperModeIsNotEnabledError
from pymobiledevice3.services.diagnostics import DiagnosticsService
from pymobiledevice3.services.heartbeat import HeartbeatService
from pymobiledevice3.services.mobile_image_mounter import DeveloperDiskImageMounter
from pymobiledevice3.services.notification_proxy import NotificationProxyService
from pymobiledevice3.services.os_trace import OsTraceService
from pymobiledevice3.services.power_assertion import PowerAssertionService

from tests.device_agent.virtual.fleet import Fleet
from tests.device_agent.virtual.mobile_client import documents_of, lockdown_of, run


@pytest.fixture(scope="module")
def udid(session_fleet: Fleet) -> str:
    return session_fleet.take("16.7")


def test_the_battery_is_as_warm_as_it_was_made(fleet: Fleet, udid: str) -> None:
    fleet.fault(udid, "thermal", thermal_state="serious", temperature_c=41.25)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, DiagnosticsService(lockdown) as service:
            assert (await service.get_battery())["Temperature"] == 4125

    run(scenario())
    fleet.fault(udid, "thermal", thermal_state="nominal", temperature_c=29.0)


def test_a_restart_that_a_client_asks_for_happens_when_it_has_left(fleet: Fleet) -> None:
    udid = fleet.take("16.7")
    before = fleet.view(udid)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, DiagnosticsService(lockdown) as service:
            await service.restart()
            assert fleet.view(udid)["boot_id"] == before["boot_id"]

    run(scenario())
    after = fleet.wait_for(
        udid, lambda device: device["boot_id"] != before["boot_id"] and device["device_ids"]
    )
    assert after["is_locked"]


def test_a_lock_is_told_to_who_observes_it(fleet: Fleet, udid: str) -> None:
    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, NotificationProxyService(lockdown) as service:
            await service.notify_register_dispatch("com.apple.springboard.lockstate")
            # The registration has no answer: a second one orders the two after each other.
            await asyncio.sleep(0.2)
            fleet.fault(udid, "lock")
            told: Any = await asyncio.wait_for(anext(aiter(service.receive_notification())), 10.0)
            assert told["Name"] == "com.apple.springboard.lockstate"

    run(scenario())
    fleet.fault(udid, "unlock")


def test_an_assertion_is_held_for_its_time_or_until_its_connection_closes(fleet: Fleet, udid: str) -> None:
    def held(device: dict[str, Any]) -> int:
        return int(device["counters"]["assertions"])

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, PowerAssertionService(lockdown) as service:
            async with service.create_power_assertion("PreventSystemSleep", "test", 0.3):
                assert held(fleet.view(udid)) == 1
                await asyncio.to_thread(fleet.wait_for, udid, lambda device: held(device) == 0)
            async with service.create_power_assertion("PreventSystemSleep", "test", 600.0):
                assert held(fleet.view(udid)) == 1

    run(scenario())
    fleet.wait_for(udid, lambda device: held(device) == 0)


def test_a_heartbeat_is_answered(fleet: Fleet, udid: str) -> None:
    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            connection = await lockdown.start_lockdown_service(HeartbeatService.SERVICE_NAME)
            assert (await connection.recv_plist())["Command"] == "Marco"
            await connection.send_plist({"Command": "Bolo"})
            with pytest.raises(ConnectionTerminatedError):
                await connection.recv_plist()
            await connection.close()

    run(scenario())


def test_an_image_is_mounted_only_in_developer_mode(fleet: Fleet) -> None:
    udid = fleet.take("16.7")
    fleet.fault(udid, "image", image="missing")
    fleet.fault(udid, "developer-mode", mode="off")

    async def mount(lockdown: Any, folder: Path) -> None:
        image, signature = folder / "i.dmg", folder / "i.dmg.signature"
        image.write_bytes(b"image")
        signature.write_bytes(b"signature")
        async with DeveloperDiskImageMounter(lockdown) as mounter:
            await mounter.mount(image, signature)

    async def scenario() -> None:
        with tempfile.TemporaryDirectory() as name:
            async with lockdown_of(udid) as lockdown:
                with pytest.raises(DeveloperModeIsNotEnabledError):
                    await mount(lockdown, Path(name))
                setting = await lockdown.start_lockdown_service("com.apple.amfi.lockdown")
                assert await setting.send_recv_plist({"action": 0}) == {"success": True}
                await setting.close()
                fleet.fault(udid, "developer-mode", mode="on")
                await mount(lockdown, Path(name))

    run(scenario())
    assert fleet.view(udid)["image_mounted"]


def test_processes_are_listed_by_their_pid(fleet: Fleet, udid: str) -> None:
    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, OsTraceService(lockdown) as service:
            listed = await service.get_pid_list()
            assert listed["Payload"]["1"]["ProcessName"] == "launchd"

    run(scenario())


def test_a_stalled_push_goes_on_where_it_was(fleet: Fleet, udid: str) -> None:
    content = bytes(range(256)) * 2000

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, await documents_of(lockdown) as files:
            fleet.fault(udid, "stall", at="push:100000")
            push = asyncio.ensure_future(files.set_file_contents("/Documents/slow", content))
            done, _ = await asyncio.wait((push,), timeout=0.4)
            assert not done
            fleet.fault(udid, "resume")
            await asyncio.wait_for(push, 10.0)
            assert await files.get_file_contents("/Documents/slow") == content

    run(scenario())
