"""The tunnel of iOS 17.4 and later, through the unmodified userspace tunnel: what is in it, how it dies."""

import asyncio
import os

import pytest
from pymobiledevice3.exceptions import CoreDeviceError, InvalidServiceError
from pymobiledevice3.remote.core_device.app_service import AppServiceService
from pymobiledevice3.remote.core_device.device_info import DeviceInfoService
from pymobiledevice3.services.afc import AfcService
from pymobiledevice3.services.diagnostics import DiagnosticsService

from contract.ios_app import BUNDLE_ID
from tests.device_agent.virtual.fleet import Fleet
from tests.device_agent.virtual.mobile_client import environment, instruments_of, lockdown_of, run, tunnel_of


@pytest.mark.parametrize("version", ["17.5", "26.1", "27.0"])
def test_instruments_and_files_work_through_the_tunnel(fleet: Fleet, version: str) -> None:
    udid = fleet.take(version)
    content = os.urandom(400_003)

    async def scenario() -> None:
        async with lockdown_of(udid), tunnel_of(udid) as directory:
            assert fleet.view(udid)["counters"]["tunnels"] == 1
            assert directory.product_version == version
            async with AfcService(directory) as files:
                await files.set_file_contents("/x", content)
                assert await files.get_file_contents("/x") == content
            async with DiagnosticsService(directory) as diagnostics:
                assert (await diagnostics.get_battery())["CurrentCapacity"] == 87
            async with instruments_of(directory) as (_, control):
                pid = await control.launch(BUNDLE_ID, environment=environment())
                assert await control.process_identifier_for_bundle_identifier(BUNDLE_ID) == pid
                await control.kill(pid)

    run(scenario())
    device = fleet.wait_for(udid, lambda device: device["counters"]["connections"] == 0)
    assert device["counters"]["tunnels"] == 0


def test_core_device_launches_lists_and_signals(fleet: Fleet) -> None:
    udid = fleet.take("18.5")

    async def scenario() -> None:
        async with lockdown_of(udid), tunnel_of(udid) as directory, AppServiceService(directory) as apps:
            answer = await apps.launch_application(BUNDLE_ID, [], environment=environment())
            pid = answer["processToken"]["processIdentifier"]
            listed = [each["processIdentifier"] for each in await apps.list_processes()]
            assert pid in listed
            async with AppServiceService(directory) as watching:
                ended = asyncio.ensure_future(watching.monitor_process_termination(pid))
                await asyncio.sleep(0.1)
                fleet.fault(udid, "kill")
                reason = await asyncio.wait_for(ended, 10.0)
                assert reason["terminationReason"]["signal"] == 9
            with pytest.raises(CoreDeviceError):
                await apps.launch_application("dev.dynofarm.none")
            async with DeviceInfoService(directory) as info:
                assert not (await info.get_lockstate())["passcodeRequired"]

    run(scenario())


def test_developer_services_appear_in_a_directory_that_is_asked_after_the_mount(fleet: Fleet) -> None:
    udid = fleet.take("18.5")
    fleet.fault(udid, "image", image="missing")

    async def scenario() -> None:
        async with lockdown_of(udid):
            async with tunnel_of(udid) as directory:
                fleet.fault(udid, "image", image="mounted")
                with pytest.raises(InvalidServiceError):
                    directory.get_service_port("com.apple.instruments.dtservicehub")
            async with tunnel_of(udid) as directory:
                assert directory.get_service_port("com.apple.instruments.dtservicehub")

    run(scenario())


def test_a_tunnel_can_die_while_the_cable_stays_in(fleet: Fleet) -> None:
    udid = fleet.take("18.5")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, tunnel_of(udid) as directory:
            async with AfcService(directory) as files:
                fleet.fault(udid, "tunnel-death")
                await asyncio.wait_for(files.wait_terminated(), 10.0)
            assert await lockdown.get_value(key="ProductVersion") == "18.5"

    run(scenario())
    assert fleet.view(udid)["device_ids"]


def test_a_mounted_image_comes_from_a_cache_without_asking_apple(fleet: Fleet) -> None:
    udid = fleet.take("18.5")
    fleet.fault(udid, "image", image="missing", ticket="kept")

    async def scenario() -> None:
        import tempfile
        from pathlib import Path

        from pymobiledevice3.services.mobile_image_mounter import PersonalizedImageMounter

        with tempfile.TemporaryDirectory() as folder:
            parts = [Path(folder, name) for name in ("Image.dmg", "BuildManifest.plist", "Image.trustcache")]
            for part in parts:
                part.write_bytes(b"cached")
            async with lockdown_of(udid) as lockdown, PersonalizedImageMounter(lockdown) as mounter:
                assert not await mounter.is_image_mounted("Personalized")
                await mounter.mount(*parts)
                assert await mounter.is_image_mounted("Personalized")

    run(scenario())
    assert fleet.view(udid)["image_mounted"]
