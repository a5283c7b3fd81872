"""Packages as a device reads them before it installs one."""

import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from device_agent.virtual.app.package import read_package
from device_agent.virtual.errors import PackageError
from tests.fakes.app_package import write_package

EXPIRES = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("content", [b"<?xml version='1.0'?><plist><dict>", b"bplist00\xff", b"no list", b""])
def test_a_damaged_list_in_a_package_is_refused_as_a_device_refuses(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.ipa"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("Payload/Runner.app/Info.plist", content)
        archive.writestr("Payload/Runner.app/embedded.mobileprovision", b"")
    with pytest.raises(PackageError) as refused:
        read_package(path)
    assert refused.value.name == "PackageExtractionFailed"


def test_what_a_package_says_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.ipa"
    write_package(path, {"CFBundleIdentifier": "dev.x", "MinimumOSVersion": "17.0"}, EXPIRES, ["U"])
    package = read_package(path)
    assert (package.bundle_id, package.minimum_version, package.devices) == ("dev.x", "17.0", ("U",))
    assert package.expires - EXPIRES < timedelta(seconds=1)
