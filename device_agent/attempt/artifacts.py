"""Files of an attempt for people: its runtime's log and its device's reports, bounded and without secrets.

They are copied beside the result before it is written, so that what it names never changes.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import Final

from contract.artifacts import ArtifactKind, ArtifactRef
from device_agent.floor.atomic_file import write_atomically
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.redaction import Redactor

MAX_LOG_BYTES: Final = 1 << 20
"""The end of a longer log is kept."""
MAX_REPORT_BYTES: Final = 2 << 20
"""A larger report is left out: half of one cannot be read."""
MAX_REPORTS: Final = 8
LOG_NAME: Final = "runtime.log"

_SECRET: Final = re.compile(
    rb"""(?i)(\bbearer\s+|(?:\b|_)(?:token|password|secret|api[_-]?key|authorization)["']?\s*[:=]\s*["']?)"""
    rb"""[^\s"',;&]{4,}"""
)
_HOME: Final = re.compile(rb"(?:/home|/Users|(?:/private)?/var/mobile)/[^/\s\"':]+")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class KeptArtifacts:
    """What the result names, and what was left out with its reason."""

    refs: tuple[ArtifactRef, ...]
    left_out: tuple[str, ...]


def keep_artifacts(folder: AttemptFolder) -> KeptArtifacts:
    """Copies everything there is; what the disk does not take is left out."""
    refs, left_out = [], []
    for name, content in _sources(folder):
        if isinstance(content, str):
            left_out.append(f"{name} was not kept: {content}")
            continue
        try:
            folder.artifacts_path.mkdir(exist_ok=True)
            write_atomically(folder.artifacts_path / name, content)
        except OSError as error:
            left_out.append(f"{name} was not kept: {error.strerror}")
            continue
        digest = hashlib.sha256(content).hexdigest()
        refs.append(ArtifactRef(name=name, sha256=digest, size_bytes=len(content)))
    return KeptArtifacts(tuple(refs), tuple(left_out))


def kind_of(name: str) -> ArtifactKind:
    """By the names that `keep_artifacts` gives."""
    if name == LOG_NAME:
        return ArtifactKind.RUNTIME_LOG
    return ArtifactKind.JETSAM_REPORT if name.startswith("jetsamevent") else ArtifactKind.CRASH_REPORT


def without_secrets(content: bytes) -> bytes:
    """Without tokens, identifiers of people and devices, this host's name and paths of homes."""
    content = content.replace(str(Path.home()).encode(), b"~") if Path.home() != Path("/") else content
    content = _SECRET.sub(rb"\1[removed]", _HOME.sub(b"~", content))
    return Redactor([gethostname()]).redact_bytes(content)


def _sources(folder: AttemptFolder) -> Iterator[tuple[str, bytes | str]]:
    """Name and content, or why there is none."""
    log = _end_of(folder.log_path)
    if log:
        yield LOG_NAME, without_secrets(log)
    reports = sorted(folder.reports_path.glob("*")) if folder.reports_path.is_dir() else []
    for number, path in enumerate(reports):
        name = _NOT_IN_NAMES.sub("-", path.name.lower()).lstrip("_.-")[:64] or f"report-{number}"
        if number >= MAX_REPORTS:
            yield name, f"an attempt keeps {MAX_REPORTS} reports"
        elif path.stat().st_size > MAX_REPORT_BYTES:
            yield name, f"it has more than {MAX_REPORT_BYTES >> 20} MiB"
        else:
            yield name, without_secrets(path.read_bytes())


def _end_of(path: Path) -> bytes:
    """b"" when there is none."""
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, 2)
            file.seek(max(0, size_bytes - MAX_LOG_BYTES))
            content = file.read()
    except OSError:
        return b""
    if size_bytes <= MAX_LOG_BYTES:
        return content
    return b"[%d bytes before this were left out]\n" % (size_bytes - MAX_LOG_BYTES) + content
