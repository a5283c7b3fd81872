"""A package that emulated devices accept, with nothing to run in it."""

import plistlib
import zipfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def write_package(
    path: Path, info: Mapping[str, Any], expires: datetime, devices: Sequence[str] | None
) -> None:
    """A package that emulated devices accept, with nothing to run in it. No Apple device takes it.

    info needs CFBundleIdentifier; devices None signs it for all.
    """
    name = str(info.get("CFBundleExecutable", "Runner"))
    profile: dict[str, Any] = {
        "Name": "dynofarm virtual",
        "ExpirationDate": expires.astimezone(UTC).replace(tzinfo=None),
        "TeamIdentifier": ["VIRTUAL000"],
        "Entitlements": {"get-task-allow": True},
    }
    profile |= {"ProvisionsAllDevices": True} if devices is None else {"ProvisionedDevices": list(devices)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        bundle = f"Payload/{name}.app/"
        archive.writestr(f"{bundle}Info.plist", plistlib.dumps({"CFBundleExecutable": name, **info}))
        archive.writestr(f"{bundle}embedded.mobileprovision", plistlib.dumps(profile))
        archive.writestr(bundle + name, b"virtual\n")
