"""Builds and their signing profiles, read before anything is scheduled."""

import os
import plistlib
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.failures import FailureReason
from device_agent.targets.ios.builds import BuildShelf, BuildUnreadableError, read_build
from device_agent.targets.ios.errors import StartRefusedError
from device_agent.targets.ios.signing import ProfileUnreadableError, parse_profile

NOW = datetime(2026, 11, 29, tzinfo=UTC)
UDID = "00008140-001A2B3C4D5E6F70"


def profile(**changed: Any) -> bytes:
    found = {
        "Name": "lab",
        "ExpirationDate": (NOW + timedelta(days=30)).replace(tzinfo=None),
        "ProvisionedDevices": [UDID],
        **changed,
    }
    # As in a signed message: bytes before and behind it.
    return b"\x30\x82\x01\x02" + plistlib.dumps(found) + b"\xa0\x82 signature"


def ipa(path: Path, content: bytes | None = None, **info: Any) -> Path:
    plist = {"CFBundleIdentifier": "dev.x", "CFBundleExecutable": "Runner", **info}
    with zipfile.ZipFile(path, "w") as package:
        package.writestr("Payload/Runner.app/Info.plist", plistlib.dumps(plist))
        if content is not None:
            package.writestr("Payload/Runner.app/embedded.mobileprovision", content)
    return path


def test_a_profile_holds_until_its_date_on_its_devices() -> None:
    found = parse_profile(profile())
    assert found.problem(UDID, NOW) == ""
    assert "expired on 2026-12-29" in found.problem(UDID, NOW + timedelta(days=31))
    assert "lacks this device" in found.problem("another", NOW)


def test_an_enterprise_s_profile_is_for_every_device() -> None:
    assert parse_profile(profile(ProvisionsAllDevices=True)).problem("any", NOW) == ""


@given(st.binary(max_size=200))
def test_no_bytes_but_a_profile_are_one(content: bytes) -> None:
    with pytest.raises(ProfileUnreadableError):
        parse_profile(content)


def test_a_build_is_known_by_its_digest_and_carries_its_profile(tmp_path: Path) -> None:
    build = read_build(ipa(tmp_path / "a.ipa", profile(), CFBundleShortVersionString="1.2"))
    assert (build.bundle_id, build.executable, build.version) == ("dev.x", "Runner", "1.2")
    assert len(build.sha256) == 64
    assert build.signing_problem(UDID, NOW, virtual=False) == ""


def test_only_an_emulated_device_takes_a_build_without_a_profile(tmp_path: Path) -> None:
    build = read_build(ipa(tmp_path / "a.ipa"))
    assert build.signing_problem(UDID, NOW, virtual=True) == ""
    assert "sign it" in build.signing_problem(UDID, NOW, virtual=False)


@pytest.mark.parametrize("content", [b"", b"<key>unclosed", b"&", b"<dict><date>x</date></dict>"])
def test_a_list_inside_a_profile_that_does_not_parse_is_told(content: bytes) -> None:
    with pytest.raises(ProfileUnreadableError):
        parse_profile(b"<?xml version='1.0'?><plist>" + content + b"</plist>")


@pytest.mark.parametrize("content", [b"<?xml version='1.0'?><plist><dict>", b"bplist00\xff", b""])
def test_a_build_with_a_damaged_list_does_not_hide_the_others(tmp_path: Path, content: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "damaged.ipa", "w") as package:
        package.writestr("Payload/Runner.app/Info.plist", content)
    good = ipa(tmp_path / "good.ipa", profile())
    with pytest.raises(BuildUnreadableError, match=r"damaged\.ipa"):
        read_build(tmp_path / "damaged.ipa")
    assert BuildShelf(tmp_path).choose(None).path == good


@pytest.mark.parametrize("place", range(30, 200, 7))
def test_a_flipped_byte_in_a_package_ends_in_no_other_error(tmp_path: Path, place: int) -> None:
    path = tmp_path / "a.ipa"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("Payload/Runner.app/Info.plist", plistlib.dumps({"CFBundleIdentifier": "dev.x"}))
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(BuildUnreadableError):
        read_build(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive at all"])
def test_what_is_no_package_is_told_and_passed_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.ipa"
    path.write_bytes(content)
    with pytest.raises(BuildUnreadableError):
        read_build(path)
    good = ipa(tmp_path / "good.ipa", profile())
    assert BuildShelf(tmp_path).choose(None).path == good


def test_the_digest_chooses_and_the_newest_is_taken_without_one(tmp_path: Path) -> None:
    old = ipa(tmp_path / "old.ipa", profile(), CFBundleVersion="1")
    new = ipa(tmp_path / "new.ipa", profile(), CFBundleVersion="2")
    os.utime(old, (1_000, 1_000))
    shelf = BuildShelf(tmp_path)
    assert shelf.choose(None).path == new
    assert shelf.choose(f"sha256:{read_build(old).sha256}").path == old


def test_a_build_that_is_not_there_says_what_is(tmp_path: Path) -> None:
    ipa(tmp_path / "there.ipa", profile())
    with pytest.raises(StartRefusedError, match=r"there\.ipa") as refused:
        BuildShelf(tmp_path).choose("sha256:" + "0" * 64)
    assert refused.value.reason is FailureReason.SIGNING
    with pytest.raises(StartRefusedError, match="none"):
        BuildShelf(tmp_path / "nowhere").choose(None)
