"""App packages (.ipa): what is read of one before it is installed."""

import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from device_agent.floor.property_list import parse_property_list
from device_agent.floor.zip_errors import ZIP_ERRORS
from device_agent.virtual.errors import PackageError

_MAX_PART_BYTES: Final = 4 << 20
_PROFILE: Final = "embedded.mobileprovision"
_NO_PROFILE: Final = (
    "Failed to verify code signature of {path} : 0xe8008015"
    " (A valid provisioning profile for this executable was not found.)"
)


@dataclass(frozen=True, slots=True)
class Package:
    """info: plain entries of Info.plist. expires, devices: of the signing profile; None: for all."""

    bundle_id: str
    info: dict[str, str | int | float | bool]
    size_bytes: int
    minimum_version: str
    expires: datetime
    devices: tuple[str, ...] | None


def read_package(path: Path) -> Package:
    """PackageError, named as the device names it, for what is not a package or is not signed."""
    try:
        with zipfile.ZipFile(path) as archive:
            bundle = _bundle_folder(archive)
            info = _plist(archive, f"{bundle}Info.plist")
            profile = _profile(archive, bundle)
            size_bytes = sum(part.file_size for part in archive.infolist())
    except FileNotFoundError:
        raise PackageError("PackageInspectionFailed", f"{path.name} is not on the device") from None
    except (*ZIP_ERRORS, ValueError, KeyError, OSError) as error:
        raise PackageError("PackageExtractionFailed", f"{path.name}: {error}") from error
    bundle_id = info.get("CFBundleIdentifier")
    if not isinstance(bundle_id, str) or not bundle_id:
        raise PackageError("PackageInspectionFailed", "Info.plist has no CFBundleIdentifier")
    plain = {key: value for key, value in info.items() if isinstance(value, str | int | float | bool)}
    devices = None if profile.get("ProvisionsAllDevices") else tuple(profile.get("ProvisionedDevices", ()))
    expires = profile.get("ExpirationDate")
    if not isinstance(expires, datetime):
        raise PackageError("ApplicationVerificationFailed", _NO_PROFILE.format(path=path.name))
    minimum = str(info.get("MinimumOSVersion", "1.0"))
    return Package(bundle_id, plain, size_bytes, minimum, expires.replace(tzinfo=UTC), devices)


def _bundle_folder(archive: zipfile.ZipFile) -> str:
    for name in archive.namelist():
        parts = name.split("/")
        if len(parts) >= 3 and parts[0] == "Payload" and parts[1].endswith(".app"):
            return f"Payload/{parts[1]}/"
    raise ValueError("there is no app in Payload")


def _plist(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    if archive.getinfo(name).file_size > _MAX_PART_BYTES:
        raise ValueError(f"{name} is too large")
    found = parse_property_list(archive.read(name))
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not a dictionary")
    return found


def _profile(archive: zipfile.ZipFile, bundle: str) -> dict[str, Any]:
    """The plist inside the signed profile; the signature itself is Apple's and is not checked here."""
    name = bundle + _PROFILE
    if name not in archive.namelist() or archive.getinfo(name).file_size > _MAX_PART_BYTES:
        raise PackageError("ApplicationVerificationFailed", _NO_PROFILE.format(path=bundle.rstrip("/")))
    data = archive.read(name)
    start, end = data.find(b"<?xml"), data.rfind(b"</plist>")
    if start < 0 or end < start:
        raise PackageError("ApplicationVerificationFailed", _NO_PROFILE.format(path=bundle.rstrip("/")))
    found = parse_property_list(data[start : end + len(b"</plist>")])
    return found if isinstance(found, dict) else {}
