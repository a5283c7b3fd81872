"""After an app's end: bring home what it wrote, then gather what says why it ended, within a limit."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Final

import structlog
from pydantic import ValidationError

from contract.events import EventLineError, MemorySampled, parse_event
from contract.run_end import Confidence
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.clock import monotonic_ns, seconds_ns
from device_agent.ios_worker.protocol import (
    DESCRIBE,
    FETCH,
    RELEASE,
    REMOVE,
    REPORTS,
    Fetch,
    FindReports,
    Nothing,
    RemotePath,
    WorkerErrorKind,
)
from device_agent.targets.ios.classifier import Claim, EndKind, classify, is_settled
from device_agent.targets.ios.device_monitor import DeviceMonitor
from device_agent.targets.ios.errors import DeviceFaultError
from device_agent.targets.ios.evidence import (
    Evidence,
    FoundReport,
    LastMemory,
    OwnProcess,
    UnreadableReport,
    names_process,
    read_reports,
)
from device_agent.targets.ios.record import RunRecord
from device_agent.targets.ios.start import remote_events, remote_folder, remote_log

_log = structlog.get_logger(__name__)

_POLL_S: Final = 1.0
_TAIL_BYTES: Final = 256 * 1024
_REPORT_NAMES: Final = ("JetsamEvent",)


async def fetch_files(device: DeviceMonitor, folder: AttemptFolder, bundle_id: str) -> bool:
    """events.jsonl from where this host's copy ends, and the log; True when all events are here.

    The folder on the device stays until then.
    """
    attempt_id, chunk_s = folder.attempt_id, device.settings.device_chunk_s
    complete = True
    for remote, local, offset in (
        (remote_events(attempt_id), folder.events_path, _size(folder.events_path)),
        (remote_log(attempt_id), folder.log_path, 0),
    ):
        fetch = Fetch(bundle_id=bundle_id, remote_path=remote, local_path=str(local), offset=offset)
        try:
            await device.call(FETCH, fetch, chunk_s)
        except DeviceFaultError as error:
            if error.fault_kind is WorkerErrorKind.FILE_MISSING:
                continue
            _log.warning("fetch_failed", attempt_id=attempt_id, path=remote, detail=str(error))
            complete = complete and local != folder.events_path
    return complete


async def clean_up(device: DeviceMonitor, folder: AttemptFolder, bundle_id: str, *, remove: bool) -> None:
    """Close what the run opened on the device; remove its folder when it is all here."""
    try:
        if remove:
            place = RemotePath(bundle_id=bundle_id, remote_path=remote_folder(folder.attempt_id))
            await device.call(REMOVE, place, device.settings.device_chunk_s)
        await device.call(RELEASE, Nothing(), device.settings.device_call_s)
    except DeviceFaultError as error:
        # The next start on this device tidies; a worker that does not close is not kept.
        _log.warning("clean_up_failed", attempt_id=folder.attempt_id, detail=str(error))
        await device.kill_worker()


@dataclass(slots=True)
class Gathering:
    """The search for a cause. `sight` gives what is known besides reports, as it is at that moment."""

    device: DeviceMonitor
    record: RunRecord
    reports_folder: Path
    sight: Callable[[Evidence], Evidence]
    _known: list[str] = field(default_factory=list)
    _found: list[FoundReport] = field(default_factory=list)
    _unreadable: list[UnreadableReport] = field(default_factory=list)
    _listed: bool = False
    _boot_after: str | None = None

    async def claim(self, memory: LastMemory | None) -> tuple[Claim, Evidence]:
        """The most certain end. Within settings.gather_s; at once when the first look is certain."""
        over_ns = monotonic_ns() + seconds_ns(self.device.settings.gather_s)
        while True:
            # A device that is away tells nothing more, and what we ended ourselves needs no report.
            over = monotonic_ns() >= over_ns or not self.device.attached
            evidence = self._evidence(memory, over=over)
            claim = classify(evidence)
            stopped = claim.kind is EndKind.STOPPED and claim.confidence >= Confidence.LIKELY
            if is_settled(claim, evidence) or stopped:
                return claim, evidence
            await self._look((over_ns - monotonic_ns()) / 1e9)
            evidence = self._evidence(memory, over=False)
            if is_settled(classify(evidence), evidence):
                continue
            await asyncio.sleep(min(_POLL_S, max(0.0, (over_ns - monotonic_ns()) / 1e9)))

    async def _look(self, left_s: float) -> None:
        if not self.device.attached or left_s <= 0:
            return
        deadline_s = min(left_s, self.device.settings.device_call_s)
        try:
            described = await self.device.call(DESCRIBE, Nothing(), deadline_s)
            self._boot_after = described.boot_id
            await self._list_reports(deadline_s)
        except DeviceFaultError as error:
            _log.info("evidence_not_had", device_id=self.device.udid, detail=str(error))

    async def _list_reports(self, deadline_s: float) -> None:
        if self.record.started_s is None:
            return
        with tempfile.TemporaryDirectory(prefix="dynofarm-reports-") as place:
            find = FindReports(
                since_s=self.record.started_s,
                names=[*_REPORT_NAMES, self.record.process_name],
                local_folder=place,
                known=self._known,
            )
            answer = await self.device.call(REPORTS, find, deadline_s)
            files = [
                (Path(file.remote_path).name, Path(file.local_path).read_bytes()) for file in answer.files
            ]
        self._known += [file.remote_path for file in answer.files]
        found, unreadable = read_reports(files)
        await asyncio.to_thread(self._keep_own, found, dict(files))
        self._found += found
        self._unreadable += unreadable
        self._listed = True

    def _keep_own(self, found: tuple[FoundReport, ...], contents: dict[str, bytes]) -> None:
        """For the person who reads the result; those about others stay on their device."""
        own = self._evidence(None, over=False).process
        for report in found:
            if names_process(own, report.content):
                try:
                    self.reports_folder.mkdir(exist_ok=True)
                    (self.reports_folder / report.file_name).write_bytes(contents[report.file_name])
                except OSError as error:
                    _log.warning("report_not_kept", file=report.file_name, detail=str(error))

    def _evidence(self, memory: LastMemory | None, *, over: bool) -> Evidence:
        record = self.record
        zone = timezone(timedelta(seconds=record.utc_offset_s))
        started_at = (
            datetime.fromtimestamp(record.started_s, zone)
            if record.started_s is not None
            else datetime.max.replace(tzinfo=UTC)
        )
        own = OwnProcess(record.pid or 0, record.process_name, started_at, record.product)
        return replace(
            self.sight(Evidence(process=own)),
            boot_before=record.boot_id or None,
            boot_after=self._boot_after,
            reports=tuple(self._found),
            unreadable_reports=tuple(self._unreadable),
            reports_listed=self._listed,
            memory=memory,
            gathering_over=over,
        )


def last_memory(events: Path) -> LastMemory | None:
    """The app's own last word on its memory, from the end of its events; None when there is none."""
    try:
        with events.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        if b'"memory_sampled"' not in line:
            continue
        try:
            event = parse_event(line)
        except (EventLineError, ValidationError):
            continue
        if isinstance(event, MemorySampled):
            return LastMemory(event.footprint_bytes, event.available_bytes, event.limit_bytes)
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
