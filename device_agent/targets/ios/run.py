"""A started app as the agent's runtime process: followed over pulled cables and dead workers to its end."""

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from contract.failures import FailureReason
from contract.run_end import RunEnd
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.clock import monotonic_ns, seconds_ns
from device_agent.ios_worker.protocol import (
    BRIDGE,
    DESCRIBE,
    DEVELOPER,
    SIGNAL,
    WATCH,
    AppQuery,
    Bridge,
    Nothing,
    Notice,
    Signal,
    Watch,
    WorkerErrorKind,
)
from device_agent.targets.ios.app_observations import AppObservations
from device_agent.targets.ios.classifier import EndKind, run_end
from device_agent.targets.ios.conditions import reading_of
from device_agent.targets.ios.device_monitor import DeviceMonitor
from device_agent.targets.ios.ending import Gathering, clean_up, fetch_files, last_memory
from device_agent.targets.ios.errors import DeviceFaultError
from device_agent.targets.ios.evidence import Evidence
from device_agent.targets.ios.policy import abort_reason
from device_agent.targets.ios.record import RunRecord, write_run
from device_agent.targets.ios.start import write_lease
from device_agent.targets.port import ExitStatus, Observation

_log = structlog.get_logger(__name__)

_ABSENT_LOOKS: Final = 2
_RETRY_S: Final = 1.0
_SILENT_LOOK_S: Final = 5.0
_FIRST_SIGHT_S: Final = 3.0
_DEVELOPER_DEADLINE_S: Final = 20.0
# Parts of the watching that a device may not offer: not worth connecting anew for.
_NOT_OFFERED: Final = frozenset({WorkerErrorKind.UNSUPPORTED, WorkerErrorKind.PROTOCOL})


@dataclass(slots=True)
class _PendingRequests:
    """What the runner asked for and was not carried out yet."""

    signal: int | None = None
    lease: bool = False


class AppRun:
    """Implements devices.port.RuntimeProcess. Everything but `pid` belongs to the agent's loop."""

    def __init__(
        self, device: DeviceMonitor, folder: AttemptFolder, record: RunRecord, socket_path: Path
    ) -> None:
        """`follow` does the work; the device's turn is the caller's."""
        self._device = device
        self._folder = folder
        self._record = record
        self._socket_path = socket_path
        self._observed = AppObservations(record.pid)
        self._pending = _PendingRequests()
        self._wake = asyncio.Event()
        self._status: ExitStatus | None = None
        self._end: RunEnd | None = None
        self._connected = False
        self._began_ns = monotonic_ns()
        self._was_attached = False
        self._away_since_ns: int | None = None
        self._told_away = False
        self._back_ns = 0
        self._detached_s: float | None = None
        self._reattached_s: float | None = None
        self._sent_signal: int | None = None
        self._abort: FailureReason | None = None
        self._abort_ns = 0

    @property
    def pid(self) -> int:
        return self._record.pid or 0

    @property
    def host_pid(self) -> int | None:
        return None

    @property
    def away_until_ns(self) -> int:
        return self._back_ns if self._away_since_ns is None else monotonic_ns()

    def exit_status(self) -> ExitStatus | None:
        return self._status

    def terminate(self) -> None:
        self._request_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._request_signal(signal.SIGKILL)

    def lease_renewed(self) -> None:
        self._pending.lease = True
        self._wake.set()

    def observations(self) -> Sequence[Observation]:
        return self._observed.observations()

    def end(self) -> RunEnd | None:
        return self._end

    async def follow(self) -> None:
        """Until the app has ended and what it left is here; then exit_status says so, whatever happened."""
        self._device.on_notice = self._take
        self._device.on_presence = self._wake.set
        try:
            await self._until_end()
            await self._finish()
        except Exception as error:
            _log.exception("run_broke", attempt_id=self._folder.attempt_id)
            self._end = RunEnd.because(FailureReason.AGENT_BUG, f"{type(error).__name__}: {error}")
        finally:
            self._device.on_notice = lambda notice: None
            self._device.on_presence = lambda: None
            seen = self._observed.exit
            self._status = ExitStatus(seen.code, seen.signal) if seen is not None else ExitStatus(None, None)

    def _request_signal(self, number: int) -> None:
        if self._status is None and self._sent_signal != number:
            self._pending.signal = number
            self._wake.set()

    def _take(self, notice: Notice) -> None:
        self._observed.take(notice)
        self._wake.set()

    async def _until_end(self) -> None:
        while not self._ended():
            self._wake.clear()
            try:
                if self._device.attached:
                    await self._attend()
                else:
                    self._away("it was detached")
            except DeviceFaultError as error:
                self._connected = False
                self._away(str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_S):
                    await self._wake.wait()

    def _ended(self) -> bool:
        if self._observed.exit is not None or self._observed.absent >= _ABSENT_LOOKS:
            return True
        if self._away_since_ns is None:
            return False
        if self._pending.signal == signal.SIGKILL and not self._device.attached:
            # Nobody can reach it, and it ends by itself: its lease is a duration on its own clock.
            return True
        away_ns = monotonic_ns() - self._away_since_ns
        return away_ns >= seconds_ns(self._device.settings.reattach_s)

    def _away(self, detail: str) -> None:
        self._connected = False
        since_ns, self._away_since_ns = self._away_since_ns, self._away_since_ns or monotonic_ns()
        if not self._was_attached and monotonic_ns() - self._began_ns < seconds_ns(_FIRST_SIGHT_S):
            # After a restart of the agent: usbmuxd has not told its list yet.
            return
        if since_ns is None or not self._told_away:
            self._told_away = True
            self._observed.transport_lost(detail)
            _log.warning("device_away", attempt_id=self._folder.attempt_id, detail=detail)
        if not self._device.attached and self._detached_s is None:
            self._detached_s = monotonic_ns() / 1e9

    async def _attend(self) -> None:
        """One round with the device at hand."""
        self._was_attached = True
        broken, self._observed.broken = self._observed.broken, None
        if broken is not None and broken.kind not in _NOT_OFFERED:
            self._connected = False
        if not self._connected:
            await self._connect()
        if self._ended():
            return
        await self._carry_out_requests()
        self._judge_conditions()
        if monotonic_ns() - self._observed.seen_ns > seconds_ns(_SILENT_LOOK_S):
            await self._look()

    async def _connect(self) -> None:
        """After the launch, a replugging, a new worker or a restart of the agent."""
        device, settings = self._device, self._device.settings
        described = await device.call(DESCRIBE, Nothing(), settings.device_call_s)
        device.described(described)
        if self._record.boot_id and described.boot_id != self._record.boot_id:
            self._observed.absent = _ABSENT_LOOKS
            return
        await self._look()
        if self._observed.absent:
            # One look may fall between two; the second decides.
            await asyncio.sleep(_RETRY_S)
            await self._look()
            return
        bridge = Bridge(socket_path=str(self._socket_path), port=self._record.port)
        await device.call(BRIDGE, bridge, settings.device_call_s)
        watch = Watch(
            bundle_id=self._record.bundle_id,
            pid=self.pid,
            sample_interval_ms=round(1000 * settings.device_sample_s),
            conditions_interval_s=settings.device_conditions_s,
        )
        await device.call(WATCH, watch, _DEVELOPER_DEADLINE_S)
        self._connected = True
        self._pending.lease = True
        if self._detached_s is not None:
            self._reattached_s = monotonic_ns() / 1e9
        if self._away_since_ns is not None:
            self._back_ns = monotonic_ns()
        self._away_since_ns, self._told_away = None, False

    async def _look(self) -> None:
        query = AppQuery(bundle_id=self._record.bundle_id)
        found = await self._device.call(DEVELOPER, query, _DEVELOPER_DEADLINE_S)
        if found.app_pid is not None and self._record.pid is None:
            # The agent died between the launch and the note of it; the turn was ours, so is the app.
            self._record = self._record.model_copy(update={"pid": found.app_pid})
            self._observed.pid = found.app_pid
            await asyncio.to_thread(write_run, self._folder.path, self._record)
        if found.app_pid is not None and found.app_pid == self._record.pid:
            self._observed.found()
        else:
            self._observed.absent += 1

    async def _carry_out_requests(self) -> None:
        settings = self._device.settings
        if self._pending.lease:
            self._pending.lease = False
            await write_lease(self._device, self._folder, self._record.bundle_id)
        number = self._pending.signal
        if number is not None:
            await self._device.call(SIGNAL, Signal(pid=self.pid, number=number), settings.device_call_s)
            self._sent_signal, self._pending.signal = number, None

    def _judge_conditions(self) -> None:
        """A device that is about to shut down, or is too hot to work, is not used up to the end."""
        found, settings = self._observed.conditions, self._device.settings
        if self._abort is not None:
            if monotonic_ns() - self._abort_ns > seconds_ns(settings.terminate_grace_s):
                self._request_signal(signal.SIGKILL)
            return
        if found is None:
            return
        reason = abort_reason(reading_of(found, monotonic_ns() / 1e9), settings.start_policy)
        if reason is not None:
            self._abort, self._abort_ns = reason, monotonic_ns()
            _log.warning("run_is_aborted", attempt_id=self._folder.attempt_id, reason=reason)
            self._request_signal(signal.SIGTERM)

    async def _finish(self) -> None:
        """Bring everything home and find the cause; each step has its deadline."""
        device, record = self._device, self._record
        complete = device.attached and await fetch_files(device, self._folder, record.bundle_id)
        memory = await asyncio.to_thread(last_memory, self._folder.events_path)
        gathering = Gathering(device, record, self._folder.reports_path, self._sight)
        claim, evidence = await gathering.claim(memory)
        self._end = run_end(claim, evidence)
        if claim.kind is EndKind.UNKNOWN and self._away_since_ns is not None:
            self._end = RunEnd.because(FailureReason.TRANSPORT_LOST, "the device did not answer any more")
        if self._abort is not None:
            self._end = RunEnd.because(self._abort, "the agent ended it to spare the device")
        _log.info(
            "app_ended",
            attempt_id=self._folder.attempt_id,
            end=claim.kind.value,
            confidence=claim.confidence.name,
            evidence=list(claim.evidence),
        )
        if device.attached:
            await clean_up(device, self._folder, record.bundle_id, remove=complete)

    def _sight(self, evidence: Evidence) -> Evidence:
        seen = self._observed
        return replace(
            evidence,
            detached_s=self._detached_s,
            reattached_s=self._reattached_s,
            exit=seen.exit,
            absent_observations=seen.absent,
            log_lines=tuple(seen.lines),
            own_signal=self._sent_signal,
        )
