"""One attempt on one device: the shell around lease.decide. It carries out instructions and reports facts.

The same code goes on with an attempt that an earlier life of the agent began: everything it needs is in
the attempt's folder.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from contract.agent_api import HeldLease, RenewRequest
from contract.events import DeviceAgentRestarted, EventEnvelope, PhaseChanged, RuntimeStarted
from contract.failures import FailureReason
from contract.run_end import RunEnd
from contract.runtime_link import LeaseFile
from device_agent.attempt.conclusion import conclude_attempt
from device_agent.attempt.delivery import Delivery
from device_agent.attempt.lease import (
    PHASE_WORDS,
    Collect,
    Conclude,
    EnterPhase,
    Facts,
    Held,
    HeldPhase,
    Instruction,
    Kill,
    Release,
    Renew,
    RuntimeCondition,
    Start,
    Stop,
    TellCancel,
    Terminate,
    deadline_ns,
    decide,
)
from device_agent.attempt.resumption import resumed_lease
from device_agent.client import ControllerClient
from device_agent.collect.intake import Intake
from device_agent.collect.link import RuntimeLink
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.clock import DecisionClock, monotonic_ns, seconds_ns, wall
from device_agent.floor.errors import (
    DeviceCallHangsError,
    LaunchError,
    ModelMissingError,
    SpoolFullError,
)
from device_agent.floor.settings import AgentSettings
from device_agent.probes.observations import record_observations
from device_agent.probes.sampler import HostSampler
from device_agent.targets.call import DeviceCall
from device_agent.targets.port import RuntimeProcess, Target
from rest.backoff import Backoff
from rest.errors import DeviceAgentOutdatedError, RefusedError, RestError, TokenRefusedError

_log = structlog.get_logger(__name__)

# Instructions follow from one another; a decision that never comes to rest is a bug and may not spin.
_MAX_DECISIONS_A_TICK = 10
_DISK_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """What every attempt of this agent shares."""

    client: ControllerClient
    settings: AgentSettings
    shutdown: asyncio.Event


class AttemptRunner:
    """Holds one device from the grant to the release. `run` returns when the device is free."""

    def __init__(self, delivery: Delivery, target: Target, around: RunnerContext) -> None:
        self.folder: AttemptFolder = delivery.folder
        self._delivery = delivery
        self._spool = delivery.spool
        self._target = target
        self._client = around.client
        self._settings = around.settings
        self._shutdown = around.shutdown
        self._lease = self.folder.grant().lease
        self._held: Held = resumed_lease(self.folder, self._spool, around.settings)
        self._intake = Intake(self._spool, self._lease.attempt_id)
        self._link: RuntimeLink | None = None
        self._process: RuntimeProcess | None = None
        self._sampler = HostSampler(self._spool, around.settings)
        self._renewal: asyncio.Task[None] | None = None
        self._renew_backoff = Backoff(around.settings.retry_first_s, around.settings.retry_cap_s)
        self._starting: asyncio.Task[None] | None = None
        self._lease_file_lock = asyncio.Lock()
        self._lease_gone = False
        self._collected = False
        self._concluded = self.folder.result() is not None
        self._storage_full = False
        self._detail = ""
        self._clock = DecisionClock()

    @property
    def held_lease(self) -> HeldLease | None:
        """For the hello: None when the lease is over as far as this agent knows."""
        if self._held.phase is HeldPhase.ENDED or self._held.lease_over or self._lease_gone:
            return None
        lease = self._lease
        return HeldLease(lease_id=lease.lease_id, attempt_id=lease.attempt_id, fence=lease.fence)

    def abandon(self) -> None:
        """The controller said that the lease is over."""
        self._lease_gone = True

    @property
    def concluded(self) -> bool:
        return self._concluded

    async def run(self) -> None:
        """Until the device is free: never waits for a network, a disk or a runtime without a limit."""
        try:
            await asyncio.to_thread(self._resume)
            if self._link is not None:
                self._link.start()
            await self._tick()
            while not self._ended():
                await asyncio.sleep(self._settings.tick_s)
                await self._tick()
        finally:
            if self._link is not None:
                await self._link.stop()
            if self._starting is not None:
                self._target.abort_launch()
            for task in (self._renewal, self._starting):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])

    def _ended(self) -> bool:
        return self._held.phase is HeldPhase.ENDED

    async def wait_for_exit(self) -> None:
        """Until the runtime is gone: one that no signal ends keeps its device busy."""
        while self._process is not None and self._process.exit_status() is None:
            self._process.kill()
            await asyncio.sleep(self._settings.tick_s)

    async def give_up(self, detail: str) -> None:
        """End the runtime and conclude with `agent_bug`: this runner met something it cannot handle."""
        await self.wait_for_exit()
        if not self._concluded:
            self._held = replace(self._held, stop=FailureReason.AGENT_BUG)
            self._detail = detail
            await self._conclude()

    def _resume(self) -> None:
        """Find the runtime of an earlier life, or see that none may be started here."""
        if self._concluded:
            # Only a refused attempt is concluded outside of this phase; its lease was never taken up.
            self._held = replace(self._held, phase=HeldPhase.UPLOADING)
        elif self.folder.start_intended:
            self._process = self._target.adopt(self.folder)
            alive = self._process is not None
            self._note(lambda seq, now: DeviceAgentRestarted(seq=seq, t_mono_ns=now, runtime_alive=alive))
            self._open_link()
        elif self._held.phase is HeldPhase.ACCEPTING:
            try:
                self._target.model_path(self._lease.spec.model)
            except ModelMissingError as error:
                self._detail = str(error)
                held = self._held.stopping(FailureReason.MODEL_MISSING, monotonic_ns())
                self._held = replace(held.entered(HeldPhase.UPLOADING, monotonic_ns()), lease_over=True)

    def _open_link(self) -> None:
        path = self._target.socket_path(self.folder)
        self._link = RuntimeLink(path, self.folder.events_path, self._spool, self._intake)

    async def _tick(self) -> None:
        self._check_tasks()
        self._clock.begin()
        try:
            for _ in range(_MAX_DECISIONS_A_TICK):
                self._clock.read()
                instructions = decide(self._held, self._facts())
                if not instructions:
                    break
                for instruction in instructions:
                    await self._carry_out(instruction)
        except (SpoolFullError, OSError) as error:
            self._storage_full = True
            _log.error("disk_refuses", attempt_id=self._lease.attempt_id, detail=str(error))
            if self._held.phase is HeldPhase.UPLOADING:
                # Nothing on the device depends on it; the disk may have room again later.
                await asyncio.sleep(_DISK_PAUSE_S)
        if not self._concluded:
            await self._record_observations()
            await self._sampler.sample_if_due(self._process)

    async def _record_observations(self) -> None:
        if not await record_observations(self._process, self._spool, self._intake.progress.trial):
            self._storage_full = True

    def _check_tasks(self) -> None:
        if self._renewal is not None and self._renewal.done():
            finished, self._renewal = self._renewal, None
            finished.result()
        if self._starting is not None and self._starting.done():
            started, self._starting = self._starting, None
            started.result()
        if self._link is not None:
            self._link.check()

    def _facts(self) -> Facts:
        progress = self._intake.progress
        return Facts(
            now_ns=self._clock.now_ns,
            gap_ns=self._clock.gap_ns,
            slept_ns=self._clock.slept_ns,
            runtime=self._runtime(),
            quiet_since_ns=max(progress.quiet_since_ns, self._away_until_ns()),
            ready=progress.ready,
            cancel=self._delivery.cancelled,
            lease_gone=self._lease_gone,
            renewing=self._renewal is not None,
            starting=self._starting is not None,
            spool_full=self._storage_full or (self._link is not None and self._link.spool_full),
            events_invalid=bool(progress.invalid),
            collected=self._collected,
            concluded=self._concluded,
            settled=self._delivery.settled,
            shutdown=self._shutdown.is_set(),
        )

    def _away_until_ns(self) -> int:
        return self._process.away_until_ns if self._process is not None else 0

    def _runtime(self) -> RuntimeCondition:
        if self._process is not None:
            alive = self._process.exit_status() is None
            return RuntimeCondition.ALIVE if alive else RuntimeCondition.GONE
        if self._starting is not None:
            return RuntimeCondition.ABSENT
        return RuntimeCondition.GONE if self.folder.start_intended else RuntimeCondition.ABSENT

    async def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Renew():
                self._renewal = asyncio.create_task(self._renew())
            case Start():
                self._starting = asyncio.create_task(self._start())
            case EnterPhase(phase):
                await self._enter(phase)
            case Stop(reason):
                self._stop(reason)
            case TellCancel():
                await self._tell_cancel()
            case Terminate() | Kill():
                self._signal(instruction)
            case Collect():
                self._collected = await self._link.finish() if self._link is not None else True
            case Conclude():
                await self._conclude()
            case Release():
                self._held = replace(self._held, phase=HeldPhase.ENDED)

    def _stop(self, reason: FailureReason) -> None:
        self._held = self._held.stopping(reason, monotonic_ns())
        if self._starting is not None:
            self._target.abort_launch()
        _log.warning("attempt_stops", attempt_id=self._lease.attempt_id, reason=reason)

    def _signal(self, instruction: Terminate | Kill) -> None:
        if isinstance(instruction, Terminate):
            self._held = replace(self._held, terminated_ns=monotonic_ns())
        else:
            self._held = replace(self._held, killed_ns=monotonic_ns())
        if self._process is not None:
            self._process.terminate() if isinstance(instruction, Terminate) else self._process.kill()

    async def _renew(self) -> None:
        sent_ns = monotonic_ns()
        phase = self._held.phase
        request = RenewRequest(
            fence=self._lease.fence,
            phase=PHASE_WORDS[phase],
            sent_at=wall(),
            trials_done=self._intake.progress.trials_done,
        )
        end_ns = self._held.deadline_ns or self._held.accept_until_ns
        timeout_s = max(0.1, (end_ns - sent_ns) / 1e9)
        try:
            answer = await self._client.renew(self._lease.lease_id, request, timeout_s)
        except RestError as error:
            self._renewal_failed(error)
            return
        if answer.directive == "cancel":
            self._delivery.cancelled = True
        # The file first: a runtime may only start, or go on, under a deadline that it can read itself.
        # One that has ended reads none: a full disk then costs no lease.
        until_ns = deadline_ns(sent_ns, answer.ttl_s, answer.margin_s)
        is_read = self._runtime() is not RuntimeCondition.GONE
        if is_read and not await self._write_lease_file(until_ns):
            self._renew_after_a_pause()
            return
        self._renew_backoff.reset()
        renewed = self._held.renewed(answer, sent_ns, self._renew_backoff.source.random())
        if self._held.phase is not phase:
            # The phase moved on while this one travelled: report it at once.
            renewed = replace(renewed, renew_at_ns=self._held.renew_at_ns)
        self._held = renewed

    def _renewal_failed(self, error: RestError) -> None:
        _log.warning("renewal_failed", lease_id=self._lease.lease_id, detail=str(error))
        if isinstance(error, RefusedError) and not isinstance(
            error, TokenRefusedError | DeviceAgentOutdatedError
        ):
            self._lease_gone = True
        self._renew_after_a_pause()

    def _renew_after_a_pause(self) -> None:
        # Within the lease there is time for several tries; a long wait could waste all of it.
        wait_ns = min(seconds_ns(self._renew_backoff.next_s()), self._held.renew_interval_ns // 2)
        self._held = replace(self._held, renew_at_ns=monotonic_ns() + wait_ns)

    async def _write_lease_file(self, until_ns: int) -> bool:
        """False when the disk did not take it: the runtime will stop at the old deadline."""
        async with self._lease_file_lock:
            lease = LeaseFile(
                deadline_mono_ns=until_ns, directive="cancel" if self._held.told_cancel else "continue"
            )
            try:
                await asyncio.to_thread(self.folder.write_lease_file, lease)
            except OSError as error:
                self._storage_full = True
                _log.error("lease_file_not_written", attempt_id=self._lease.attempt_id, detail=str(error))
                return False
        if self._process is not None:
            self._process.lease_renewed()
        return True

    async def _tell_cancel(self) -> None:
        self._held = replace(self._held, told_cancel=True)
        if self._held.deadline_ns is not None:
            await self._write_lease_file(self._held.deadline_ns)

    async def _start(self) -> None:
        call = DeviceCall(self._launch, f"the start of {self._lease.attempt_id}")
        try:
            process = await call.result(self._target.start_deadline_s)
        except asyncio.CancelledError:
            call.when_done(lambda late: late.kill())
            raise
        except (LaunchError, ModelMissingError, DeviceCallHangsError) as error:
            call.when_done(lambda late: late.kill())
            self._detail = str(error)
            if self._held.stop is None:
                self._held = self._held.stopping(error.reason, monotonic_ns())
            return
        self._process = process
        self._open_link()
        if self._link is not None:
            self._link.start()
        try:
            await asyncio.to_thread(
                self._note, lambda seq, now: RuntimeStarted(seq=seq, t_mono_ns=now, pid=process.pid)
            )
        except SpoolFullError:
            self._storage_full = True

    def _launch(self) -> RuntimeProcess:
        return self._target.launch(self.folder, self._target.model_path(self._lease.spec.model))

    async def _enter(self, phase: HeldPhase) -> None:
        word = PHASE_WORDS[phase]
        await asyncio.to_thread(self._note, lambda seq, now: PhaseChanged(seq=seq, t_mono_ns=now, phase=word))
        self._held = self._held.entered(phase, monotonic_ns())

    async def _conclude(self) -> None:
        # The stream of the agent ends with the result.
        await self._record_observations()
        reason = self._held.stop
        stop = RunEnd.because(reason, self._detail) if reason is not None else None
        await asyncio.to_thread(
            conclude_attempt, self.folder, self._spool, self._process, self._intake.progress, stop
        )
        self._concluded = True
        self._delivery.conclude()

    def _note(self, make: Callable[[int, int], EventEnvelope]) -> None:
        self._spool.record(lambda seq: make(seq, monotonic_ns()))
