"""Crash reports that are newer than a run: flushed, listed to every depth, brought to this host."""

import contextlib
import posixpath
import re
from pathlib import Path
from typing import Final

from pymobiledevice3.exceptions import AfcException
from pymobiledevice3.services.afc import AfcService
from pymobiledevice3.services.crash_reports import CrashReportsManager

from device_agent.ios_worker.faults import WorkerError, kind_of
from device_agent.ios_worker.files import Progress, chunks
from device_agent.ios_worker.protocol import FindReports, ReportFile, Reports, WorkerErrorKind
from device_agent.ios_worker.session import Session

_MAX_REPORT_BYTES: Final = 16 << 20
_MAX_REPORTS: Final = 64
_MAX_LISTED: Final = 20_000
_REPORT_NAME: Final = re.compile(r"\.ips(\.[a-z.]+)?$")
# File times are whole seconds on some systems, and a report is begun before it is dated.
_SLACK_S: Final = 2.0


class CrashReports:
    """The calls about reports; works also while the device is locked."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def reports(self, find: FindReports, progress: Progress) -> Reports:
        """Those of the wanted names that are new since find.since_s, also those moved to Retired."""
        client = await self._session.lockdown()
        async with CrashReportsManager(client) as manager:
            with contextlib.suppress(AfcException):
                await manager.flush()
            wanted = await _wanted(manager.afc, find)
            brought: list[ReportFile] = []
            for remote, modified_s, size_bytes in wanted[:_MAX_REPORTS]:
                local = Path(find.local_folder) / remote.strip("/").replace("/", "_")
                if size_bytes <= _MAX_REPORT_BYTES and await _bring(manager.afc, remote, local, size_bytes):
                    brought.append(
                        ReportFile(remote_path=remote, local_path=str(local), modified_s=modified_s)
                    )
                progress(len(brought), len(wanted))
        return Reports(files=brought, left=len(wanted) - len(brought))


async def _wanted(afc: AfcService, find: FindReports) -> list[tuple[str, float, int]]:
    """Path, time by the device's clock and size, newest first."""
    known = set(find.known)
    found: list[tuple[str, float, int]] = []
    listed = 0
    async for path in afc.dirlist("/", -1):
        listed += 1
        if listed > _MAX_LISTED:
            raise WorkerError(WorkerErrorKind.PROTOCOL, f"more than {_MAX_LISTED} crash reports; clear them")
        name = posixpath.basename(path)
        if path in known or not _REPORT_NAME.search(name) or not name.startswith(tuple(find.names)):
            continue
        try:
            stat = await afc.stat(path)
        except AfcException as error:
            if kind_of(error) is WorkerErrorKind.FILE_MISSING:
                continue
            raise
        modified_s = stat["st_mtime"].timestamp()
        if modified_s >= find.since_s - _SLACK_S:
            found.append((path, modified_s, int(stat["st_size"])))
    return sorted(found, key=lambda each: -each[1])


async def _bring(afc: AfcService, remote: str, local: Path, size_bytes: int) -> bool:
    """False for one that vanished or is still being written: it is asked for again."""
    try:
        content = b"".join([chunk async for chunk in chunks(afc, remote, 0, size_bytes)])
    except (AfcException, WorkerError) as error:
        if kind_of(error) in {WorkerErrorKind.FILE_MISSING, WorkerErrorKind.PROTOCOL}:
            return False
        raise
    local.parent.mkdir(parents=True, exist_ok=True)
    local.write_bytes(content)
    return True
