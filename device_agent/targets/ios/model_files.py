"""A model as what is pushed to a device: its files with their digests, and a digest of the whole."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from contract.ios_app import MODELS_FOLDER


@dataclass(frozen=True, slots=True)
class PushedFile:
    """A local file and where it goes, relative to the app's Documents."""

    local: Path
    remote: str
    sha256: str


@dataclass(frozen=True, slots=True)
class PushedModel:
    """remote: what the app is told, relative to Documents."""

    remote: str
    files: tuple[PushedFile, ...]


class ModelDigests:
    """Digests of files, computed once as long as size and time stay. Reads the disk: call it in a thread."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, int, str]] = {}

    def sha256(self, path: Path) -> str:
        """OSError."""
        stat = path.stat()
        known = self._known.get(path)
        if known is not None and known[:2] == (stat.st_size, stat.st_mtime_ns):
            return known[2]
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._known[path] = (stat.st_size, stat.st_mtime_ns, digest)
        return digest

    def model(self, path: Path) -> PushedModel:
        """A file or a folder; the folder's digest is that of its files' names and digests."""
        if path.is_file():
            digest = self.sha256(path)
            remote = f"{MODELS_FOLDER}/{digest}/{path.name}"
            return PushedModel(remote, (PushedFile(path, remote, digest),))
        found = [(file, self.sha256(file)) for file in sorted(path.rglob("*")) if file.is_file()]
        lines = "".join(f"{digest} {file.relative_to(path).as_posix()}\n" for file, digest in found)
        whole = f"{MODELS_FOLDER}/{hashlib.sha256(lines.encode()).hexdigest()}/{path.name}"
        files = (
            PushedFile(file, f"{whole}/{file.relative_to(path).as_posix()}", digest) for file, digest in found
        )
        return PushedModel(whole, tuple(files))
