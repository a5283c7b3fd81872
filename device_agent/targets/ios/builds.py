"""The app's builds on this host: IPAs in a folder, each known by its digest."""

import hashlib
import re
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from contract.failures import FailureReason
from contract.ids import DeviceId
from device_agent.floor.property_list import parse_property_list
from device_agent.floor.zip_errors import ZIP_ERRORS
from device_agent.targets.ios.errors import StartRefusedError
from device_agent.targets.ios.signing import SigningProfile, parse_profile

_MAX_MEMBER_BYTES: Final = 4 << 20
_MAX_MEMBERS: Final = 100_000
_INFO: Final = re.compile(r"^Payload/[^/]+\.app/Info\.plist$")
_PROFILE: Final = re.compile(r"^Payload/[^/]+\.app/embedded\.mobileprovision$")


class BuildUnreadableError(ValueError):
    """A file is no IPA."""


@dataclass(frozen=True, slots=True)
class Build:
    """One IPA. profile None: it carries none, so no device but an emulated one may take it."""

    path: Path
    sha256: str
    bundle_id: str
    executable: str
    version: str
    profile: SigningProfile | None

    def signing_problem(self, device_id: DeviceId, now: datetime, *, virtual: bool) -> str:
        """Why the device would not start it, "" for nothing. Only an emulated one needs no profile."""
        if self.profile is not None:
            return self.profile.problem(device_id, now)
        return "" if virtual else f"{self.path.name} has no provisioning profile; sign it for this device"


class BuildShelf:
    """The folder's IPAs, read again only when a file has changed. Reads the disk: call it in a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[str, int, int], Build | str] = {}

    def choose(self, artifact: str | None) -> Build:
        """The one with this digest (`sha256:…`), or the newest; StartRefusedError that says what is there."""
        builds, problems = self._read()
        if artifact is not None:
            wanted = artifact.removeprefix("sha256:")
            found = next((build for build in builds if build.sha256 == wanted), None)
        else:
            found = builds[0] if builds else None
        if found is not None:
            return found
        there = ", ".join(f"{build.path.name} ({build.sha256[:12]})" for build in builds) or "none"
        wanted_text = "no app" if artifact is None else f"no app with {artifact[:19]}"
        problem = f"; {problems[0]}" if problems else ""
        raise StartRefusedError(
            f"{wanted_text} in {self._folder}; there are: {there}{problem}; put the signed IPA there",
            FailureReason.SIGNING,
        )

    def _read(self) -> tuple[list[Build], list[str]]:
        """Newest first."""
        found: dict[tuple[str, int, int], Build | str] = {}
        ages: list[tuple[int, Build]] = []
        for path in sorted(self._folder.glob("*.ipa")) if self._folder.is_dir() else []:
            stat = path.stat()
            key = (str(path), stat.st_size, stat.st_mtime_ns)
            entry = self._known.get(key) or _entry(path)
            found[key] = entry
            if isinstance(entry, Build):
                ages.append((stat.st_mtime_ns, entry))
        self._known = found
        problems = [entry for entry in found.values() if isinstance(entry, str)]
        return [build for _, build in sorted(ages, key=lambda each: -each[0])], problems


def read_build(path: Path) -> Build:
    """BuildUnreadableError for what is no IPA; OSError."""
    try:
        with zipfile.ZipFile(path) as package:
            info = _member(package, _INFO)
            profile = _member(package, _PROFILE)
        if info is None:
            raise BuildUnreadableError("no Payload/….app/Info.plist in it")
        plist = parse_property_list(info)
        return Build(
            path=path,
            sha256=_sha256(path),
            bundle_id=str(plist["CFBundleIdentifier"]),
            executable=str(plist["CFBundleExecutable"]),
            version=str(plist.get("CFBundleShortVersionString", plist.get("CFBundleVersion", ""))),
            profile=parse_profile(profile) if profile is not None else None,
        )
    except (*ZIP_ERRORS, ValueError) as error:
        raise BuildUnreadableError(f"{path.name}: {error}") from error
    except (KeyError, TypeError) as error:
        raise BuildUnreadableError(f"{path.name}: its Info.plist lacks {error}") from error


def _entry(path: Path) -> Build | str:
    try:
        return read_build(path)
    except (BuildUnreadableError, OSError) as error:
        return str(error)


def _member(package: zipfile.ZipFile, pattern: re.Pattern[str]) -> bytes | None:
    for entry in package.infolist()[:_MAX_MEMBERS]:
        if pattern.match(entry.filename):
            if entry.file_size > _MAX_MEMBER_BYTES:
                raise BuildUnreadableError(f"{entry.filename} has {entry.file_size} bytes")
            return package.read(entry)
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
