"""Files of the app's container over AFC: pushed with resume and a digest, fetched from an offset."""

import contextlib
import hashlib
import posixpath
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from pymobiledevice3.exceptions import AfcException, AfcFileNotFoundError
from pymobiledevice3.services.afc import AfcService

from contract.ios_app import PARTIAL_SUFFIX
from device_agent.ios_worker.faults import WorkerError, kind_of
from device_agent.ios_worker.protocol import (
    Fetch,
    Fetched,
    Names,
    Nothing,
    Push,
    Pushed,
    RemotePath,
    WorkerErrorKind,
    WriteFile,
)
from device_agent.ios_worker.session import Session, closed

Progress = Callable[[int, int], None]
DOCUMENTS: Final = "/Documents"
_CHUNK_BYTES: Final = 1 << 20


class AppFiles:
    """The calls about files, on the session's AFC connection."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def push(self, push: Push, progress: Progress) -> Pushed:
        """A file that is there under its final name was verified when it got it."""
        afc = await self._session.files(push.bundle_id)
        local, remote = Path(push.local_path), inside(push.remote_path)
        size_bytes = local.stat().st_size
        if await size_of(afc, remote) == size_bytes:
            return Pushed(sent_bytes=0)
        partial = remote + PARTIAL_SUFFIX
        await afc.makedirs(posixpath.dirname(remote))
        offset = await self._resumable(afc, partial, size_bytes)
        await _send(afc, local, partial, offset, progress)
        if await _digest(afc, partial, size_bytes, progress) != push.sha256:
            await afc.rm_single(partial, force=True)
            raise WorkerError(
                WorkerErrorKind.DIGEST_WRONG, f"{push.remote_path} arrived damaged; it is pushed again"
            )
        await afc.rename(partial, remote)
        return Pushed(sent_bytes=size_bytes - offset)

    async def write(self, write: WriteFile, progress: Progress) -> Nothing:
        """Beside it first, then renamed: whoever reads it never sees half of it."""
        afc = await self._session.files(write.bundle_id)
        remote = inside(write.remote_path)
        await afc.makedirs(posixpath.dirname(remote))
        await afc.set_file_contents(remote + PARTIAL_SUFFIX, write.text.encode())
        await afc.rename(remote + PARTIAL_SUFFIX, remote)
        return Nothing()

    async def fetch(self, fetch: Fetch, progress: Progress) -> Fetched:
        """What the file has now; one that grows meanwhile is read up to the size it had."""
        afc = await self._session.files(fetch.bundle_id)
        remote = inside(fetch.remote_path)
        size_bytes = await size_of(afc, remote)
        if size_bytes is None:
            raise WorkerError(WorkerErrorKind.FILE_MISSING, f"there is no {fetch.remote_path}")
        if size_bytes < fetch.offset:
            raise WorkerError(WorkerErrorKind.PROTOCOL, f"{fetch.remote_path} shrank to {size_bytes} bytes")
        with Path(fetch.local_path).open("ab") as file:
            file.truncate(fetch.offset)
            async for chunk in chunks(afc, remote, fetch.offset, size_bytes):
                file.write(chunk)
                progress(file.tell(), size_bytes)
        return Fetched(size_bytes=size_bytes)

    async def list(self, folder: RemotePath, progress: Progress) -> Names:
        """Without . and .., which AFC lists too."""
        afc = await self._session.files(folder.bundle_id)
        try:
            found = await afc.listdir(inside(folder.remote_path))
        except AfcException as error:
            if kind_of(error) is WorkerErrorKind.FILE_MISSING:
                return Names(names=[])
            raise
        return Names(names=sorted(name for name in found if name not in {".", ".."}))

    async def remove(self, path: RemotePath, progress: Progress) -> Nothing:
        """Nothing for a path that is not there."""
        afc = await self._session.files(path.bundle_id)
        with contextlib.suppress(AfcFileNotFoundError):
            await afc.rm(inside(path.remote_path), force=True)
        return Nothing()

    async def _resumable(self, afc: AfcService, partial: str, size_bytes: int) -> int:
        there = await size_of(afc, partial) or 0
        if there > size_bytes:
            await afc.rm_single(partial, force=True)
            return 0
        return there


def inside(remote_path: str) -> str:
    """Absolute in the app's container; WorkerError for one that leaves Documents."""
    full = posixpath.normpath(posixpath.join(DOCUMENTS, remote_path))
    if not full.startswith(f"{DOCUMENTS}/"):
        raise WorkerError(WorkerErrorKind.PROTOCOL, f"{remote_path!r} is outside of the app's Documents")
    return full


async def size_of(afc: AfcService, remote: str) -> int | None:
    """None for what is not there."""
    try:
        return int((await afc.stat(remote))["st_size"])
    except AfcException as error:
        if kind_of(error) is WorkerErrorKind.FILE_MISSING:
            return None
        raise


async def chunks(afc: AfcService, remote: str, offset: int, size_bytes: int) -> AsyncIterator[bytes]:
    """Bytes offset to size_bytes in order. WorkerError when the file ends early: the library says nothing."""
    handle = await afc.fopen(remote, "r")
    try:
        await afc.fseek(handle, offset)
        while offset < size_bytes:
            chunk = await afc.fread(handle, min(_CHUNK_BYTES, size_bytes - offset))
            if not chunk:
                raise WorkerError(
                    WorkerErrorKind.PROTOCOL, f"{remote} ended at {offset} of {size_bytes} bytes"
                )
            offset += len(chunk)
            yield chunk
    finally:
        await closed(afc.fclose(handle))


async def _send(afc: AfcService, local: Path, partial: str, offset: int, progress: Progress) -> None:
    size_bytes = local.stat().st_size
    handle = await afc.fopen(partial, "r+" if offset else "w")
    try:
        await afc.fseek(handle, offset)
        with local.open("rb") as file:
            file.seek(offset)
            while chunk := file.read(_CHUNK_BYTES):
                await afc.fwrite(handle, chunk)
                progress(file.tell(), size_bytes)
    finally:
        await closed(afc.fclose(handle))


async def _digest(afc: AfcService, remote: str, size_bytes: int, progress: Progress) -> str:
    """Read back: a resumed file may have a damaged beginning, and AFC itself compares nothing."""
    digest = hashlib.sha256()
    read_bytes = 0
    async for chunk in chunks(afc, remote, 0, size_bytes):
        digest.update(chunk)
        read_bytes += len(chunk)
        progress(read_bytes, size_bytes)
    return digest.hexdigest()
