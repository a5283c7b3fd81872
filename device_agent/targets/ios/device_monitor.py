"""Looks after one iPhone: cable, worker, preflight, report. A sick one keeps only itself busy."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import structlog

from contract.agent_api import DeviceReport
from contract.failures import FailureReason
from contract.ids import DeviceId
from contract.model import ContractModel
from contract.states import TargetKind
from device_agent.floor.clock import monotonic_ns, seconds_ns
from device_agent.floor.settings import AgentSettings
from device_agent.ios_worker.protocol import PING, Description, Method, Nothing, Notice, WorkerErrorKind
from device_agent.targets.ios.builds import BuildShelf
from device_agent.targets.ios.errors import DeviceFaultError
from device_agent.targets.ios.policy import GateMemory
from device_agent.targets.ios.preflight import Look, look
from device_agent.targets.ios.preflight_steps import (
    PreflightStep,
    SeenStep,
    as_properties,
    blocked,
    reasons_of,
)
from device_agent.targets.ios.presence import Presence
from device_agent.targets.ios.record import DeviceRecord, read_device, write_device
from device_agent.targets.ios.worker import (
    OnProgress,
    WorkerCommand,
    WorkerProcess,
    worker_environment,
    worker_program,
)
from device_agent.targets.models import model_names, model_problems
from rest.backoff import Backoff

_log = structlog.get_logger(__name__)

Q = TypeVar("Q", bound=ContractModel)
A = TypeVar("A", bound=ContractModel)

STARTING = "starting"
_PATIENT_TRIES = 4
_SETTLE_S = 0.5
# What a call fails with while its device is plugged in anew.
PASSING_KINDS = frozenset({WorkerErrorKind.DISCONNECTED, WorkerErrorKind.TUNNEL, WorkerErrorKind.BROKEN})


class DeviceMonitor:
    """Lives as long as the agent, also while its device is away. All but `report` belongs to the loop."""

    def __init__(
        self, udid: DeviceId, settings: AgentSettings, shelf: BuildShelf, starts: asyncio.Semaphore
    ) -> None:
        """Starts nothing before `run`. starts: how many workers may load their library at once."""
        self.udid = udid
        self.settings = settings
        self.shelf = shelf
        self.turn = asyncio.Lock()
        """Held by whoever works on the device: a preflight, or an attempt from its preparation to its end."""
        self.on_notice: Callable[[Notice], None] = lambda notice: None
        self.on_presence: Callable[[], None] = lambda: None
        self.gate = GateMemory()
        self._presence: Presence | None = None
        self._worker_mux_id: int | None = None
        self._worker: WorkerProcess | None = None
        self._starting = asyncio.Lock()
        self._starts = starts
        self._backoff = Backoff(settings.retry_first_s, settings.retry_cap_s)
        self._not_before_ns = 0
        self._start_error: DeviceFaultError | None = None
        self._changed = asyncio.Event()
        self._look: Look | None = None
        self._record_path = settings.agent_home / "ios" / "devices" / f"{udid}.json"
        self._record = read_device(self._record_path)
        self._held = False

    @property
    def attached(self) -> bool:
        """By a cable of its own, so that calls may reach it."""
        return self._presence is not None and not self._presence.problem

    @property
    def mux_id(self) -> int | None:
        """Of its cable; another one after each plugging in."""
        return self._presence.mux_id if self._presence is not None else None

    @property
    def worker_pid(self) -> int | None:
        """For people and tests."""
        return self._worker.pid if self._worker is not None and not self._worker.ended else None

    @property
    def description(self) -> Description | None:
        """The last that was read, perhaps in an earlier life of the agent."""
        return self._record.description

    def hold(self) -> None:
        """An attempt has the device: it is reported even while unplugged."""
        self._held = True

    def let_go(self) -> None:
        """The attempt is over; the device is looked at anew."""
        self._held = False
        self._look = None
        self.gate = replace(self.gate, run_ended_s=monotonic_ns() / 1e9)
        self._changed.set()

    def seen(self, presence: Presence | None, *, trust_changed: bool = False) -> None:
        """From the supervisor, at every change of the daemon's list."""
        if presence == self._presence and not trust_changed:
            return
        replugged = presence is not None and presence.mux_id != self.mux_id
        self._presence = presence
        self._look = None
        self._not_before_ns = 0
        if replugged:
            self._remember(generation=self._record.generation + 1)
        self._changed.set()
        self.on_presence()

    def described(self, description: Description) -> None:
        """A fresh description; a new boot is a new generation."""
        known = self._record.description
        rebooted = known is not None and known.boot_id != description.boot_id
        self._remember(self._record.generation + int(rebooted), description)

    def _remember(self, generation: int, description: Description | None = None) -> None:
        record = DeviceRecord(generation=generation, description=description or self._record.description)
        if record.model_copy(update={"description": None}) != self._record.model_copy(
            update={"description": None}
        ) or _identity(record.description) != _identity(self._record.description):
            with contextlib.suppress(OSError):
                write_device(self._record_path, record)
        self._record = record

    async def run(self) -> None:
        """Until cancelled; the worker is down then."""
        try:
            while True:
                self._changed.clear()
                interval_s = await self._attend()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval_s):
                        await self._changed.wait()
        finally:
            await self.stop_worker()

    async def _attend(self) -> float | None:
        """One round; seconds to the next, None to wait for a change."""
        if not self.attached:
            if not self._held:
                await self.stop_worker()
            return None
        if self.turn.locked():
            return self.settings.preflight_retry_s
        async with self.turn:
            try:
                self._look = await look(self)
            except Exception:
                # One look that breaks must not end the care for this device.
                _log.exception("preflight_broke", device_id=self.udid)
                return self.settings.retry_cap_s
        steps = self._look.steps
        if any("Don't Trust" in step.say for step in steps):
            # Every further try would put the question on the screen again.
            return None
        return self.settings.preflight_retry_s if reasons_of(steps) else self.settings.preflight_s

    async def call(
        self, method: Method[Q, A], params: Q, deadline_s: float, on_progress: OnProgress | None = None
    ) -> A:
        """Through the worker, which is started when there is none; DeviceFaultError."""
        worker = await self._running_worker()
        try:
            answer = await worker.call(method, params, deadline_s, on_progress)
        except DeviceFaultError as error:
            if error.fault_kind is WorkerErrorKind.BROKEN:
                await worker.kill()
            if worker.ended:
                self._worker_failed(worker)
            raise
        self._backoff.reset()
        return answer

    async def patient_call(self, method: Method[Q, A], params: Q, deadline_s: float) -> A:
        """The same for what may be done twice: a cable plugged in again in time costs one more try."""
        until_ns = monotonic_ns() + seconds_ns(self.settings.reattach_s)
        for _ in range(_PATIENT_TRIES):
            try:
                return await self.call(method, params, deadline_s)
            except DeviceFaultError as error:
                if error.fault_kind not in PASSING_KINDS or not await self._attached_until(until_ns):
                    raise
        return await self.call(method, params, deadline_s)

    async def _attached_until(self, until_ns: int) -> bool:
        """After a pause for the cable to settle; False when it did not come back."""
        while monotonic_ns() < until_ns:
            await asyncio.sleep(_SETTLE_S)
            if self.attached and monotonic_ns() >= self._not_before_ns:
                return True
        return False

    async def stop_worker(self) -> None:
        """In order; nothing when there is none."""
        async with self._starting:
            worker, self._worker = self._worker, None
            if worker is not None:
                await worker.stop()

    async def kill_worker(self) -> None:
        """At once: what it was doing must end now."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.kill()

    async def _running_worker(self) -> WorkerProcess:
        async with self._starting:
            if not self.attached:
                raise DeviceFaultError(WorkerErrorKind.DISCONNECTED, "the device is not attached")
            if self._worker is not None and not self._worker.ended:
                if self._worker_mux_id == self.mux_id:
                    return self._worker
                # It was plugged anew: whatever this worker holds open leads nowhere.
                await self._worker.kill()
            wait_s = (self._not_before_ns - monotonic_ns()) / 1e9
            if wait_s > 0 and self._start_error is not None:
                raise self._start_error
            if wait_s > 0:
                raise DeviceFaultError(
                    WorkerErrorKind.STALLED, f"its worker keeps ending; the next try is in {wait_s:.1f} s"
                )
            self._worker_mux_id = self.mux_id
            self._worker = await self._start_worker()
            return self._worker

    async def _start_worker(self) -> WorkerProcess:
        settings = self.settings
        home = settings.agent_home / "ios"
        command = WorkerCommand(
            worker_program(settings.worker_command, self.udid, settings.images_folder),
            worker_environment(dict(os.environ), settings.usbmux_address, home),
            home / "logs" / f"{self.udid}.log",
        )
        try:
            async with self._starts:
                worker = await WorkerProcess.start(command, lambda notice: self.on_notice(notice))
                # Twenty that load their library at once would all be late.
                await worker.call(PING, Nothing(), settings.device_call_s)
            return worker
        except DeviceFaultError as error:
            self._not_before_ns = monotonic_ns() + seconds_ns(self._backoff.next_s())
            # Its advice stays until the next try: nothing else would help.
            self._start_error = error if error.fault_kind is WorkerErrorKind.LIBRARY_MISSING else None
            raise
        except OSError as error:
            self._not_before_ns = monotonic_ns() + seconds_ns(self._backoff.next_s())
            raise DeviceFaultError(
                WorkerErrorKind.PROTOCOL, f"{command.program[0]} does not start: {error}"
            ) from error

    def _worker_failed(self, worker: WorkerProcess) -> None:
        if self._worker is worker:
            self._worker = None
            self._not_before_ns = monotonic_ns() + seconds_ns(self._backoff.next_s())

    def report(self) -> DeviceReport | None:
        """As it was seen last, None while it is away. Any thread may: it reads what is replaced whole."""
        presence, seen, held = self._presence, self._look, self._held
        if presence is None and not held:
            return None
        if presence is not None and presence.problem:
            steps: tuple[SeenStep, ...] = (blocked(PreflightStep.ATTACHED, presence.problem),)
        else:
            steps = seen.steps if seen is not None else ()
        reasons = reasons_of(steps)
        if presence is None:
            reasons = [FailureReason.TRANSPORT_LOST.value]
        elif held:
            reasons = reasons or []
        elif seen is None and not reasons:
            reasons = [STARTING]
        return self._reported(reasons, steps, seen)

    def _reported(self, reasons: list[str], steps: tuple[SeenStep, ...], seen: Look | None) -> DeviceReport:
        about = self._record.description
        virtual = about is not None and about.virtual
        return DeviceReport(
            device_id=self.udid,
            kind=TargetKind.VIRTUAL if virtual else TargetKind.IOS,
            generation=max(1, self._record.generation),
            ready=not reasons,
            reasons=[reason[:500] for reason in reasons[:64]],
            ready_in_s=seen.ready_in_s if seen is not None and reasons else None,
            device_model=about.device_model if about is not None else "iPhone",
            os_name=about.os_name if about is not None else "iOS",
            os_version=about.os_version if about is not None else "unknown",
            os_build=about.os_build if about is not None else "",
            memory_bytes=about.memory_bytes if about is not None else None,
            virtual=virtual,
            models=model_names(self.settings.models_folder),
            model_problems=model_problems(self.settings.models_folder),
            labels={"host": os.uname().nodename},
            properties={
                "preflight": as_properties(steps),
                **(seen.properties if seen is not None else {}),
            },
        )

    @property
    def folder(self) -> Path:
        """Of this host, for what belongs to the device."""
        return self._record_path.parent


def _identity(description: Description | None) -> tuple[str, ...]:
    """What is worth a write to the disk: the clock goes on all the time."""
    if description is None:
        return ()
    return (
        *(description.device_model, description.os_version, description.os_build),
        *(description.boot_id, str(description.virtual)),
    )
