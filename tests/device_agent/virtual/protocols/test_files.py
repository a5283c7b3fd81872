"""AFC through unmodified pymobiledevice3: resume, byte-accurate room, cables pulled at a byte."""

import os
from pathlib import Path

import pytest
from pymobiledevice3.exceptions import AfcException, ConnectionTerminatedError
from pymobiledevice3.services.afc import AfcError, AfcService

from contract.ios_app import BUNDLE_ID
from tests.device_agent.virtual.fleet import Fleet
from tests.device_agent.virtual.mobile_client import documents_of, lockdown_of, run


def _documents(fleet: Fleet, udid: str) -> Path:
    (container,) = (fleet.home / "devices" / udid / "Containers").iterdir()
    return container / "Documents"


def test_what_is_pushed_comes_back_and_can_be_renamed(fleet: Fleet) -> None:
    udid = fleet.take("18.5")
    content = os.urandom(3_000_001)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, await documents_of(lockdown) as files:
            await files.makedirs("/Documents/models/abc")
            await files.set_file_contents("/Documents/models/abc/m.part", content)
            await files.rename("/Documents/models/abc/m.part", "/Documents/models/abc/m")
            assert await files.get_file_contents("/Documents/models/abc/m") == content
            assert (await files.stat("/Documents/models/abc/m"))["st_size"] == len(content)
            assert "m.part" not in await files.listdir("/Documents/models/abc")

    run(scenario())
    assert (_documents(fleet, udid) / "models/abc/m").read_bytes() == content


def test_a_push_is_resumed_where_it_ended(fleet: Fleet) -> None:
    udid = fleet.take("18.5")
    content = os.urandom(50_000)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            async with await documents_of(lockdown) as files:
                handle = await files.fopen("/Documents/half.part", "w")
                await files.fwrite(handle, content[:20_000])
                await files.fclose(handle)
            async with await documents_of(lockdown) as files:
                handle = await files.fopen("/Documents/half.part", "r+")
                await files.fseek(handle, 20_000)
                await files.fwrite(handle, content[20_000:])
                await files.fclose(handle)
                assert await files.get_file_contents("/Documents/half.part") == content

    run(scenario())


def test_a_full_disk_takes_every_byte_for_which_there_is_room(fleet: Fleet) -> None:
    udid = fleet.take("18.5")
    fleet.fault(udid, "fill", free_bytes=10_007)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, await documents_of(lockdown) as files:
            with pytest.raises(AfcException) as refused:
                await files.set_file_contents("/Documents/big", b"x" * 30_000)
            assert refused.value.status == AfcError.NO_SPACE_LEFT
            assert (await files.stat("/Documents/big"))["st_size"] == 10_007
            await files.rm_single("/Documents/big")
            await files.set_file_contents("/Documents/fits", b"y" * 10_007)

    run(scenario())


@pytest.mark.parametrize("byte", [1, 70_000, 299_999])
def test_a_cable_is_pulled_at_exactly_that_byte_of_a_push(fleet: Fleet, byte: int) -> None:
    udid = fleet.take("26.1")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            fleet.fault(udid, "detach", at=f"push:{byte}")
            with pytest.raises(ConnectionTerminatedError):
                async with await documents_of(lockdown) as files:
                    await files.set_file_contents("/Documents/cut", os.urandom(300_000))

    run(scenario())
    assert (_documents(fleet, udid) / "cut").stat().st_size == byte
    device = fleet.wait_for(udid, lambda device: device["counters"]["connections"] == 0)
    assert device["device_ids"] == []
    assert [played["fault"] for played in device["played"]] == ["detach"]
    fleet.fault(udid, "attach")


@pytest.mark.parametrize("name", ["/../../escaped", "/Documents/../../../escaped"])
def test_no_path_leaves_what_is_shown(fleet: Fleet, name: str) -> None:
    udid = fleet.take("27.0")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, AfcService(lockdown) as files:
            with pytest.raises(AfcException) as refused:
                await files.set_file_contents(name, b"x")
            assert refused.value.status == AfcError.PERM_DENIED

    run(scenario())
    assert not list(fleet.home.rglob("escaped"))


def test_no_link_leaves_what_is_shown(fleet: Fleet) -> None:
    udid = fleet.take("27.0")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown, AfcService(lockdown) as files:
            await files.link("/", "/up")
            with pytest.raises(AfcException):
                await files.get_file_contents("/up/etc/passwd")

    run(scenario())


def test_an_app_that_is_not_there_has_no_documents(fleet: Fleet) -> None:
    udid = fleet.take("27.0")

    async def scenario() -> None:
        from pymobiledevice3.exceptions import AppNotInstalledError
        from pymobiledevice3.services.house_arrest import HouseArrestService

        async with lockdown_of(udid) as lockdown:
            with pytest.raises(AppNotInstalledError):
                await HouseArrestService.create(lockdown, f"{BUNDLE_ID}.other", documents_only=True)

    run(scenario())
