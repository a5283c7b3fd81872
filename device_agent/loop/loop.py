"""The agent's loops: hello, claims and attempts of every device, deliveries, old folders."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import structlog

from contract.agent_api import DeviceReport, HeldLease, Hello, HelloAnswer, ResultRequest
from contract.failures import FailureReason
from contract.ids import AttemptId, DeviceId
from contract.run_end import RunEnd
from contract.version import installed_version
from device_agent.attempt.delivery import Delivery
from device_agent.attempt.resumption import open_spool
from device_agent.attempt.runner import AttemptRunner, RunnerContext
from device_agent.client import ControllerClient
from device_agent.collect.upload import wait_after
from device_agent.floor.attempt_folder import AttemptFolder, Grant, attempt_folders
from device_agent.floor.clock import monotonic_ns, wall
from device_agent.floor.errors import AgentError, DeviceCallHangsError, FolderDamagedError
from device_agent.floor.settings import AgentSettings
from device_agent.loop.claims import ClaimDesk
from device_agent.loop.identity import ADVICE, enroll
from device_agent.probes.host import disk_refusal, host_health
from device_agent.targets.call import DeviceCall
from device_agent.targets.port import Fleet, Target
from rest.backoff import Backoff
from rest.errors import DeviceAgentOutdatedError, RestError, TokenRefusedError

_log = structlog.get_logger(__name__)

_REPORT_DEADLINE_S = 30.0
_TIDY_INTERVAL_S = 600.0
_IDLE_S = 1.0
# Of the time for a shutdown: first the runtimes end, then their results leave.
_RUNTIMES_SHARE = 0.7
# After a refusal the controller should hear of it before this device asks again.
_SETTLE_WAIT_S = 10.0


class Agent:
    """Everything of one agent process. `run(stop)` returns after `stop` is set and the runtimes are down."""

    def __init__(
        self,
        client: ControllerClient,
        settings: AgentSettings,
        targets: Sequence[Target],
        fleet: Fleet | None = None,
    ) -> None:
        """targets are always there, those of the fleet come and go. The agent's folders must exist."""
        self._client = client
        self._settings = settings
        self._targets = {target.device_id: target for target in targets}
        self._fleet = fleet
        self._serving: list[asyncio.Task[None]] = []
        self._shutdown = asyncio.Event()
        self._around = RunnerContext(client, settings, self._shutdown)
        self._attempts_root = settings.attempts_folder
        self._desk = ClaimDesk(client, settings)
        self._reporting: dict[DeviceId, DeviceCall[DeviceReport | None]] = {}
        self._runners: dict[DeviceId, AttemptRunner] = {}
        self._deliveries: dict[AttemptId, tuple[Delivery, asyncio.Task[None]]] = {}
        self._answer: HelloAnswer | None = None
        self._told: dict[DeviceId, tuple[object, ...] | None] = {}
        self._hello_now = asyncio.Event()
        self._disk_refusal = ""
        self.over_budget = False

    async def run(self, stop: asyncio.Event) -> None:
        """Go on with what an earlier life left, then serve until `stop` is set or a budget is used up."""
        resumed = self._resume()
        for target in list(self._targets.values()):
            self._begin(target, resumed.get(target.device_id, []))
        others = [
            asyncio.create_task(self._for_ever("hello", self._say_hello)),
            asyncio.create_task(self._for_ever("tidy", self._tidy)),
        ]
        if self._fleet is not None:
            fleet = self._fleet
            others.append(asyncio.create_task(self._for_ever("fleet", lambda: fleet.run(self._found))))
        stopping = asyncio.create_task(stop.wait())
        drained = asyncio.create_task(self._drained())
        ending: list[asyncio.Task[Any]] = [stopping, drained]
        try:
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            self._shutdown.set()
            await asyncio.wait(self._serving, timeout=_RUNTIMES_SHARE * self._settings.shutdown_s)
            await self._deliver_last((1 - _RUNTIMES_SHARE) * self._settings.shutdown_s)
        finally:
            deliveries = [task for _, task in self._deliveries.values()]
            for task in (*ending, *self._serving, *others, *deliveries):
                task.cancel()
            await asyncio.gather(*ending, *self._serving, *others, *deliveries, return_exceptions=True)

    async def _drained(self) -> None:
        """Over budget every device ends, and none is begun any more."""
        while not self.over_budget or not all(task.done() for task in self._serving):
            await asyncio.sleep(self._settings.tick_s)

    def _found(self, target: Target) -> None:
        """A device that was not served yet; nothing for one that is."""
        if target.device_id not in self._targets and not self.over_budget:
            self._targets[target.device_id] = target
            self._begin(target, [])
            self._hello_now.set()

    def _begin(self, target: Target, resumed: Sequence[AttemptRunner]) -> None:
        self._serving.append(asyncio.create_task(self._serve(target, resumed)))

    def _target_of(self, device_id: DeviceId) -> Target | None:
        """Of an attempt from before: its device may be away now, but its app is not forgotten."""
        target = self._targets.get(device_id)
        if target is None and self._fleet is not None:
            target = self._fleet.target(device_id)
            if target is not None:
                self._targets[device_id] = target
        return target

    def _resume(self) -> dict[DeviceId, list[AttemptRunner]]:
        """Deliveries of all unsettled attempts, and runners for those that may still hold their device."""
        resumed: dict[DeviceId, list[AttemptRunner]] = {}
        for folder in attempt_folders(self._attempts_root):
            try:
                if folder.settlement() is not None:
                    continue
                device_id = folder.grant().lease.device_id
                delivery = self._deliver(folder)
                if (target := self._target_of(device_id)) is not None:
                    runner = AttemptRunner(delivery, target, self._around)
                    resumed.setdefault(device_id, []).append(runner)
            except FolderDamagedError as error:
                _log.error("folder_damaged", folder=str(folder.path), detail=str(error))
        return resumed

    def _deliver(self, folder: AttemptFolder) -> Delivery:
        delivery = Delivery(folder, open_spool(folder, self._settings), self._client, self._settings)
        task = asyncio.create_task(delivery.run(), name=f"deliver-{folder.attempt_id}")
        self._deliveries[folder.attempt_id] = (delivery, task)
        task.add_done_callback(lambda done: self._delivered(folder.attempt_id, done))
        return delivery

    def _delivered(self, attempt_id: AttemptId, task: asyncio.Task[None]) -> None:
        self._deliveries.pop(attempt_id, None)
        if not task.cancelled() and task.exception() is not None:
            # Its folder stays unsettled: the next start of the agent tries again.
            _log.error("delivery_broke", attempt_id=attempt_id, exc_info=task.exception())

    async def _serve(self, target: Target, resumed: Sequence[AttemptRunner]) -> None:
        """One device: attempt after attempt, never two at a time. Ends at shutdown or over budget."""
        # One that still has a runtime comes before those that only wait for their acknowledgement.
        waiting = sorted(resumed, key=lambda runner: runner.concluded)
        backoff = Backoff(self._settings.retry_first_s, self._settings.retry_cap_s)
        while not (self._shutdown.is_set() or self.over_budget):
            try:
                if waiting:
                    await self._run(target, waiting.pop(0))
                else:
                    await self._serve_once(target, backoff)
            except Exception:
                # One device's trouble, even a bug, must not take the other devices down.
                _log.exception("device_loop_broke", device_id=target.device_id)
                await asyncio.sleep(backoff.next_s())

    async def _serve_once(self, target: Target, backoff: Backoff) -> None:
        answer = self._answer
        if answer is None:
            await self._pause(self._settings.tick_s)
            return
        report = await self._report(target)
        if _standing(report) != self._told.get(target.device_id):
            # Work waits for it, or must not be given to it any more.
            self._hello_now.set()
        if answer.drain or report is None or not report.ready:
            await self._pause(_IDLE_S)
            return
        try:
            grant = await self._claim(target, answer.claim_wait_s)
        except (RestError, AgentError) as error:
            _log.warning("claim_failed", device_id=target.device_id, detail=str(error))
            await self._pause(wait_after(error, backoff))
            return
        backoff.reset()
        if grant is None:
            self._check_budget()
            return
        await self._accept(target, grant)

    async def _claim(self, target: Target, wait_s: float) -> Grant | None:
        """A claim, ended early at shutdown: the same claim is asked again at the next start."""
        claim = asyncio.create_task(self._desk.claim(target.device_id, wait_s))
        leaving = asyncio.create_task(self._shutdown.wait())
        try:
            await asyncio.wait([claim, leaving], return_when=asyncio.FIRST_COMPLETED)
            return claim.result() if claim.done() else None
        finally:
            for task in (claim, leaving):
                task.cancel()
            await asyncio.gather(claim, leaving, return_exceptions=True)

    async def _accept(self, target: Target, grant: Grant) -> None:
        try:
            folder = await asyncio.to_thread(AttemptFolder.create, self._attempts_root, grant)
        except FileExistsError:
            _log.info("attempt_known", attempt_id=grant.lease.attempt_id)
            self._desk.forget(target.device_id)
            return
        except OSError as error:
            await self._decline(grant, f"the device agent's disk took no attempt: {error.strerror}")
            self._desk.forget(target.device_id)
            return
        self._desk.forget(target.device_id)
        delivery = self._deliver(folder)
        await self._run(target, AttemptRunner(delivery, target, self._around))
        deadline_ns = monotonic_ns() + int(_SETTLE_WAIT_S * 1e9)
        while not (delivery.settled or self._shutdown.is_set()) and monotonic_ns() < deadline_ns:
            await asyncio.sleep(self._settings.tick_s)
        self._check_budget()

    async def _decline(self, grant: Grant, detail: str) -> None:
        """Give an attempt back that there is no room for; AgentError when the controller cannot be told."""
        _log.error("attempt_declined", attempt_id=grant.lease.attempt_id, detail=detail)
        end = RunEnd.because(FailureReason.STORAGE_HOST, detail)
        result = ResultRequest(**dict(end), fence=grant.lease.fence, last_seq={})
        await self._client.finish(grant.lease.attempt_id, result)

    async def _run(self, target: Target, runner: AttemptRunner) -> None:
        self._runners[target.device_id] = runner
        try:
            await runner.run()
        except Exception as error:
            # A bug of this agent: the runtime must end, the attempt must not hang, the agent must live.
            _log.exception("runner_broke", attempt_id=runner.folder.attempt_id)
            await runner.give_up(f"{type(error).__name__}: {error}")
        finally:
            del self._runners[target.device_id]
            self._hello_now.set()
        await runner.wait_for_exit()

    async def _report(self, target: Target) -> DeviceReport | None:
        """None when the device did not answer in time: one that hangs must not hide the others."""
        call = self._reporting.get(target.device_id)
        if call is None or call.done:
            call = DeviceCall(target.report, f"the report of {target.device_id}")
            self._reporting[target.device_id] = call
        try:
            return await self._with_disk(await call.result(_REPORT_DEADLINE_S))
        except DeviceCallHangsError as error:
            _log.error("device_hangs", device_id=target.device_id, detail=str(error), stack=error.stack)
        except OSError as error:
            _log.error("device_report_failed", device_id=target.device_id, detail=str(error))
        return None

    async def _with_disk(self, report: DeviceReport | None) -> DeviceReport | None:
        """A disk that cannot be written makes every device of this host wait: an attempt needs a folder."""
        refusal = await asyncio.to_thread(disk_refusal, self._settings.agent_home)
        if refusal != self._disk_refusal:
            self._disk_refusal = refusal
            log = _log.error if refusal else _log.info
            log("disk_takes_nothing" if refusal else "disk_takes_files", detail=refusal)
        if report is None or not refusal or FailureReason.STORAGE_HOST in report.reasons:
            return report
        reasons = [FailureReason.STORAGE_HOST.value, *report.reasons]
        return report.model_copy(update={"ready": False, "reasons": reasons})

    async def _say_hello(self) -> None:
        backoff = Backoff(self._settings.retry_first_s, self._settings.retry_cap_s)
        while True:
            try:
                interval_s = await self._hello_once()
                backoff.reset()
            except RestError as error:
                _log.warning("hello_failed", detail=str(error))
                interval_s = wait_after(error, backoff)
                if isinstance(error, DeviceAgentOutdatedError):
                    self._answer = None
                    interval_s = backoff.cap_s
                if isinstance(error, TokenRefusedError):
                    self._answer = None
                    await self._enroll_again()
            await self._pause_until_hello(interval_s)

    async def _pause_until_hello(self, interval_s: float) -> None:
        """An attempt that ended is news: the controller need not wait for the interval."""
        try:
            async with asyncio.timeout(interval_s):
                await self._hello_now.wait()
        except TimeoutError:
            return
        self._hello_now.clear()

    async def _hello_once(self) -> float:
        reports = await asyncio.gather(*(self._report(target) for target in list(self._targets.values())))
        self._told = {report.device_id: _standing(report) for report in reports if report is not None}
        sent = self._held_leases()
        backlog = [await asyncio.to_thread(delivery.spool.backlog) for delivery, _ in self._live_deliveries()]
        answer = await self._client.hello(
            Hello(
                agent_version=installed_version(),
                sent_at=wall(),
                health=host_health(self._settings.agent_home, sum(backlog)),
                devices=[report for report in reports if report is not None],
                leases=list(sent.values()),
            )
        )
        gone = {*sent} - {*answer.continue_leases} | {*answer.abandon_leases}
        for runner in self._runners.values():
            held = runner.held_lease
            if held is not None and held.lease_id in gone:
                _log.warning("lease_abandoned", lease_id=held.lease_id)
                runner.abandon()
        self._answer = answer
        return answer.hello_interval_s

    def _held_leases(self) -> dict[str, HeldLease]:
        held = [runner.held_lease for runner in self._runners.values()]
        return {lease.lease_id: lease for lease in held if lease is not None}

    def _live_deliveries(self) -> list[tuple[Delivery, asyncio.Task[None]]]:
        return [each for each in self._deliveries.values() if not each[0].settled]

    async def _enroll_again(self) -> None:
        if self._settings.enrollment_token is None:
            _log.error("token_refused", advice=ADVICE)
            return
        backoff = Backoff(self._settings.retry_first_s, self._settings.retry_cap_s)
        try:
            identity = await enroll(self._client, self._settings, backoff)
        except (RestError, AgentError) as error:
            _log.error("enrolment_refused", detail=str(error), advice=ADVICE)
            return
        self._client.authorise(identity.token)

    async def _for_ever(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception:
                # The other loops go on; this one begins again.
                _log.exception("loop_broke", loop=name)
                await asyncio.sleep(_IDLE_S)

    async def _tidy(self) -> None:
        """Remove folders whose result was settled long enough ago."""
        while True:
            await asyncio.to_thread(self._remove_settled)
            await asyncio.sleep(min(_TIDY_INTERVAL_S, max(1.0, self._settings.keep_settled_s)))

    def _remove_settled(self) -> None:
        before = wall() - timedelta(seconds=self._settings.keep_settled_s)
        for path in sorted(self._attempts_root.iterdir()):
            folder = AttemptFolder(path)
            try:
                settlement = folder.settlement()
            except FolderDamagedError:
                continue
            if (
                settlement is not None
                and settlement.at < before
                and folder.attempt_id not in self._deliveries
            ):
                folder.remove()

    def _check_budget(self) -> None:
        health = host_health(self._settings.agent_home, 0)
        settings = self._settings
        if health.open_files > settings.max_open_files or health.resident_bytes > settings.max_resident_bytes:
            _log.error("over_budget", open_files=health.open_files, resident_bytes=health.resident_bytes)
            self.over_budget = True

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._shutdown.wait()
        except TimeoutError:
            return

    async def _deliver_last(self, timeout_s: float) -> None:
        """Results that are written may still leave before the end; the rest leaves after the next start."""
        tasks = [task for _, task in self._live_deliveries()]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)


def _standing(report: DeviceReport | None) -> tuple[object, ...] | None:
    """What the controller should hear of at once."""
    return None if report is None else (report.ready, tuple(report.reasons), report.generation)
