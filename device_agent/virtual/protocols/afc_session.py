"""What one AFC client does to the files below one folder, under the device's byte-accurate free space."""

import errno
import itertools
import os
import shutil
import stat
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import IO, Final

from device_agent.virtual.device.disk import Disk, resolve_below
from device_agent.virtual.device.triggers import Progress, Triggers

_BLOCK_BYTES: Final = 4096
_MAX_OPEN_FILES: Final = 256
_MAX_READ_BYTES: Final = 64 << 20


class AfcStatus(IntEnum):
    """Numbers of the protocol."""

    SUCCESS = 0
    UNKNOWN_ERROR = 1
    NO_RESOURCES = 3
    INVALID_ARGUMENT = 7
    OBJECT_NOT_FOUND = 8
    OBJECT_IS_DIR = 9
    PERMISSION_DENIED = 10
    OPERATION_NOT_SUPPORTED = 15
    OBJECT_EXISTS = 16
    NO_SPACE_LEFT = 18
    IO_ERROR = 20
    DIR_NOT_EMPTY = 33

    @classmethod
    def of(cls, error: OSError) -> "AfcStatus":
        """What a client is told about a failure of the file system."""
        return _OF_ERRNO.get(error.errno or 0, cls.IO_ERROR)


_OF_ERRNO: Final = {
    errno.ENOENT: AfcStatus.OBJECT_NOT_FOUND,
    errno.ENOTDIR: AfcStatus.OBJECT_NOT_FOUND,
    errno.EISDIR: AfcStatus.OBJECT_IS_DIR,
    errno.EEXIST: AfcStatus.OBJECT_EXISTS,
    errno.ENOTEMPTY: AfcStatus.DIR_NOT_EMPTY,
    errno.EPERM: AfcStatus.PERMISSION_DENIED,
    errno.EACCES: AfcStatus.PERMISSION_DENIED,
    errno.ENOSPC: AfcStatus.NO_SPACE_LEFT,
    errno.EINVAL: AfcStatus.INVALID_ARGUMENT,
}


class AfcRefusal(Exception):  # noqa: N818 - an answer to the client, not a failure of ours
    """The operation is not done; `status` is the answer."""

    def __init__(self, status: AfcStatus) -> None:
        super().__init__(status.name)
        self.status = status


@dataclass(frozen=True, slots=True)
class AfcResult:
    """One answer: a handle, a position, data, or else a status."""

    status: AfcStatus = AfcStatus.SUCCESS
    data: bytes | None = None
    handle: int | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True)
class _OpenFile:
    file: IO[bytes]
    can_write: bool
    appends: bool


# Mode of the protocol → mode of open(), and whether the file is made when it is missing.
_MODES: Final = {1: "rb", 2: "r+b", 3: "wb", 4: "w+b", 5: "ab", 6: "a+b"}
_READ_WRITE: Final = 2


class AfcSession:
    """Files that one client has open below `root`. `triggers` count what is written, byte by byte."""

    def __init__(self, root: Path, disk: Disk, triggers: Triggers) -> None:
        self._root = root
        self._disk = disk
        self._triggers = triggers
        self._files: dict[int, _OpenFile] = {}
        self._handles = itertools.count(1)
        disk.measure()

    def close(self) -> None:
        """The client left: what it wrote stays, also half a file."""
        for opened in self._files.values():
            opened.file.close()
        self._files.clear()

    def open(self, mode: int, name: str) -> AfcResult:
        path = resolve_below(self._root, name)
        if mode not in _MODES:
            raise AfcRefusal(AfcStatus.INVALID_ARGUMENT)
        if len(self._files) >= _MAX_OPEN_FILES:
            raise AfcRefusal(AfcStatus.NO_RESOURCES)
        if mode == _READ_WRITE and not path.exists():
            path.touch()
        before_bytes = path.stat().st_size if path.is_file() else 0
        file = path.open(_MODES[mode], buffering=0)
        if mode in (3, 4):
            self._disk.grow(-before_bytes)
        handle = next(self._handles)
        self._files[handle] = _OpenFile(file, can_write=mode != 1, appends=mode in (5, 6))
        return AfcResult(handle=handle)

    def read(self, handle: int, size_bytes: int) -> AfcResult:
        """At most so many bytes from the file's position."""
        return AfcResult(data=self._file(handle).file.read(min(size_bytes, _MAX_READ_BYTES)))

    async def write(self, handle: int, data: bytes) -> AfcResult:
        """All of the bytes, or as many as there is room for and then a refusal.

        Stops exactly at a byte for which a fault was ordered, plays it, and goes on.
        """
        opened = self._file(handle)
        if not opened.can_write:
            raise AfcRefusal(AfcStatus.PERMISSION_DENIED)
        view = memoryview(data)
        while view:
            room = self._triggers.room(Progress.PUSH_BYTES)
            piece = view if room is None else view[:room]
            self._write_piece(opened, piece)
            view = view[len(piece) :]
            await self._triggers.advance(Progress.PUSH_BYTES, len(piece))
        return AfcResult()

    def _write_piece(self, opened: _OpenFile, piece: memoryview) -> None:
        file = opened.file
        size_bytes = os.fstat(file.fileno()).st_size
        start = size_bytes if opened.appends else file.tell()
        growth_bytes = max(0, start + len(piece) - size_bytes)
        missing_bytes = growth_bytes - self._disk.grow(growth_bytes)
        fitting = piece[: len(piece) - missing_bytes]
        while fitting:
            fitting = fitting[file.write(fitting) or 0 :]
        if missing_bytes:
            raise AfcRefusal(AfcStatus.NO_SPACE_LEFT)

    def seek(self, handle: int, whence: int, offset: int) -> AfcResult:
        if whence > 2:
            raise AfcRefusal(AfcStatus.INVALID_ARGUMENT)
        self._file(handle).file.seek(offset, whence)
        return AfcResult()

    def tell(self, handle: int) -> AfcResult:
        return AfcResult(position=self._file(handle).file.tell())

    def close_file(self, handle: int) -> AfcResult:
        self._file(handle).file.close()
        del self._files[handle]
        return AfcResult()

    def set_size(self, handle: int, size_bytes: int) -> AfcResult:
        """Cuts the file, or makes it longer if there is room."""
        descriptor = self._file(handle).file.fileno()
        self._account(size_bytes - os.fstat(descriptor).st_size)
        os.ftruncate(descriptor, size_bytes)
        return AfcResult()

    def lock(self, handle: int) -> AfcResult:
        """Granted: there is nobody else on the device who would lock."""
        self._file(handle)
        return AfcResult()

    def truncate(self, name: str, size_bytes: int) -> AfcResult:
        """set_size by name."""
        path = resolve_below(self._root, name)
        self._account(size_bytes - path.stat().st_size)
        os.truncate(path, size_bytes)
        return AfcResult()

    def read_folder(self, name: str) -> AfcResult:
        """Names, with `.` and `..` as the device sends them."""
        names = [".", "..", *sorted(os.listdir(resolve_below(self._root, name)))]
        return AfcResult(data=b"".join(each.encode() + b"\0" for each in names))

    def file_info(self, name: str) -> AfcResult:
        """Size, kind and times as text."""
        path = resolve_below(self._root, name)
        found = path.lstat()
        kind = next(text for test, text in _KINDS if test(found.st_mode))
        pairs: dict[str, str | int] = {
            "st_size": found.st_size,
            "st_blocks": -(-found.st_size // _BLOCK_BYTES),
            "st_nlink": found.st_nlink,
            "st_ifmt": kind,
            "st_mtime": found.st_mtime_ns,
            "st_birthtime": found.st_ctime_ns,
        }
        if kind == "S_IFLNK":
            pairs["LinkTarget"] = os.readlink(path)
        return AfcResult(data=_pairs(pairs))

    def device_info(self) -> AfcResult:
        """Model, total and free bytes as text."""
        self._disk.measure()
        return AfcResult(data=_pairs(self._disk.file_system_info()))

    def make_folder(self, name: str) -> AfcResult:
        """With its parents; one that exists is not an error."""
        resolve_below(self._root, name).mkdir(parents=True, exist_ok=True)
        return AfcResult()

    def remove(self, name: str) -> AfcResult:
        """A file or an empty folder."""
        path = resolve_below(self._root, name)
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode):
            path.rmdir()
        else:
            path.unlink()
            self._disk.grow(-found.st_size)
        return AfcResult()

    def remove_all(self, name: str) -> AfcResult:
        """A file, or a folder with everything in it."""
        path = resolve_below(self._root, name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        self._disk.measure()
        return AfcResult()

    def rename(self, old: str, new: str) -> AfcResult:
        """Replaces what was under the new name."""
        os.replace(resolve_below(self._root, old), resolve_below(self._root, new))
        self._disk.measure()
        return AfcResult()

    def make_link(self, kind: int, target: str, name: str) -> AfcResult:
        """A symbolic (2) or hard (1) link."""
        path = resolve_below(self._root, name)
        if kind == 2:
            path.symlink_to(target)
        else:
            path.hardlink_to(resolve_below(self._root, target))
        return AfcResult()

    def set_time(self, name: str, time_ns: int) -> AfcResult:
        """When the file was changed last."""
        os.utime(resolve_below(self._root, name), ns=(time_ns, time_ns))
        return AfcResult()

    def _file(self, handle: int) -> _OpenFile:
        try:
            return self._files[handle]
        except KeyError:
            raise AfcRefusal(AfcStatus.INVALID_ARGUMENT) from None

    def _account(self, growth_bytes: int) -> None:
        granted_bytes = self._disk.grow(growth_bytes)
        if granted_bytes < growth_bytes:
            self._disk.grow(-granted_bytes)
            raise AfcRefusal(AfcStatus.NO_SPACE_LEFT)


_KINDS: Final = (
    (stat.S_ISDIR, "S_IFDIR"),
    (stat.S_ISLNK, "S_IFLNK"),
    (stat.S_ISFIFO, "S_IFIFO"),
    (stat.S_ISSOCK, "S_IFSOCK"),
    (stat.S_ISREG, "S_IFREG"),
    (lambda _: True, "S_IFBLK"),
)


def _pairs(pairs: dict[str, str | int]) -> bytes:
    return b"".join(f"{key}\0{value}\0".encode() for key, value in pairs.items())
