"""installation_proxy: what is installed, what is refused and why, what a pulled cable leaves."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymobiledevice3.exceptions import AppInstallError, ConnectionTerminatedError
from pymobiledevice3.services.installation_proxy import InstallationProxyService

from contract.ios_app import BUNDLE_ID
from tests.device_agent.virtual.fleet import Fleet
from tests.device_agent.virtual.mobile_client import lockdown_of, run
from tests.fakes.app_package import write_package

OTHER = "dev.dynofarm.other"


@pytest.fixture(scope="module")
def udid(session_fleet: Fleet) -> str:
    return session_fleet.take("18.5")


def package(path: Path, devices: list[str] | None = None, days: float = 30.0, **info: Any) -> Path:
    """A signed package of OTHER."""
    expires = datetime.now(UTC) + timedelta(days=days)
    write_package(path, {"CFBundleIdentifier": OTHER, "CFBundleVersion": "1", **info}, expires, devices)
    return path


async def install(lockdown: Any, path: Path, command: str = "Install") -> list[int]:
    percents: list[int] = []
    async with InstallationProxyService(lockdown) as service:
        await service.install_from_local(path, cmd=command, handler=percents.append)
    return percents


async def version(lockdown: Any) -> str | None:
    async with InstallationProxyService(lockdown) as service:
        found = await service.get_apps("User", bundle_identifiers=[OTHER])
    return found[OTHER]["CFBundleVersion"] if found else None


def test_an_app_is_installed_upgraded_and_removed(fleet: Fleet, udid: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            percents = await install(lockdown, package(tmp_path / "a.ipa", devices=[udid]))
            assert percents == sorted(percents)
            assert await version(lockdown) == "1"
            await install(lockdown, package(tmp_path / "b.ipa", CFBundleVersion="2"), "Upgrade")
            assert await version(lockdown) == "2"
            async with InstallationProxyService(lockdown) as service:
                names = await service.browse(attributes=["CFBundleIdentifier"])
                assert {each["CFBundleIdentifier"] for each in names} == {BUNDLE_ID, OTHER}
                await service.uninstall(OTHER)
            assert await version(lockdown) is None

    run(scenario())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"days": -1.0}, "ApplicationVerificationFailed.*0xe8008011"),
        ({"devices": ["00008030-000000000000002E"]}, "ApplicationVerificationFailed.*0xe8008012"),
        ({"MinimumOSVersion": "99.0"}, "DeviceOSVersionTooLow"),
        ({"CFBundleIdentifier": ""}, "PackageInspectionFailed"),
    ],
    ids=["expired", "for another device", "for a later system", "without a name"],
)
def test_a_package_that_the_device_must_not_take_is_refused(
    fleet: Fleet, udid: str, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    path = package(tmp_path / "a.ipa", **changes)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            with pytest.raises(AppInstallError, match=reason):
                await install(lockdown, path)
            assert await version(lockdown) is None

    run(scenario())


def test_a_package_without_a_profile_is_refused(fleet: Fleet, udid: str, tmp_path: Path) -> None:
    import zipfile

    path = package(tmp_path / "signed.ipa")
    unsigned = tmp_path / "unsigned.ipa"
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(unsigned, "w") as part:
        for name in whole.namelist():
            if not name.endswith("mobileprovision"):
                part.writestr(name, whole.read(name))

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            with pytest.raises(AppInstallError, match="0xe8008015"):
                await install(lockdown, unsigned)

    run(scenario())


def test_an_install_without_room_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    udid = fleet.take("27.0")
    path = package(tmp_path / "a.ipa", CFBundleName="x" * 100_000)
    # The package itself has to be pushed first, and is smaller.
    fleet.fault(udid, "fill", free_bytes=path.stat().st_size + 50_000)

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            with pytest.raises(AppInstallError, match="InsufficientStorage"):
                await install(lockdown, path)

    run(scenario())


def test_an_ordered_refusal_comes_once(fleet: Fleet, udid: str, tmp_path: Path) -> None:
    fleet.fault(udid, "provisioning", kind="install-refused")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            with pytest.raises(AppInstallError, match="0xe8008015"):
                await install(lockdown, package(tmp_path / "a.ipa"))
            await install(lockdown, package(tmp_path / "a.ipa"))
            async with InstallationProxyService(lockdown) as service:
                await service.uninstall(OTHER)

    run(scenario())


def test_a_cable_that_is_pulled_during_an_install_leaves_the_old_app(fleet: Fleet, tmp_path: Path) -> None:
    udid = fleet.take("27.0")

    async def scenario() -> None:
        async with lockdown_of(udid) as lockdown:
            await install(lockdown, package(tmp_path / "a.ipa"))
        fleet.fault(udid, "detach", at="install:60")
        with pytest.raises(ConnectionTerminatedError):
            async with lockdown_of(udid) as lockdown:
                await install(lockdown, package(tmp_path / "b.ipa", CFBundleVersion="2"), "Upgrade")
        fleet.fault(udid, "attach")
        async with lockdown_of(udid) as lockdown:
            assert await version(lockdown) == "1"

    run(scenario())
