"""One iPhone as a target of the agent: the port's blocking methods over the monitor's loop."""

import asyncio
import concurrent.futures
from pathlib import Path
from typing import Final

import structlog

from contract.agent_api import DeviceReport
from contract.failures import FailureReason
from contract.ids import DeviceId, Name
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.errors import LaunchError
from device_agent.targets.ios.device_monitor import DeviceMonitor
from device_agent.targets.ios.model_files import ModelDigests
from device_agent.targets.ios.record import RunRecord, read_run
from device_agent.targets.ios.run import AppRun
from device_agent.targets.ios.start import Start
from device_agent.targets.models import model_path
from device_agent.targets.port import RuntimeProcess
from device_agent.targets.socket_place import socket_folder, socket_name

_log = structlog.get_logger(__name__)

_LONGEST_START_S: Final = 86_400.0


class IosTarget:
    """Made in the agent's loop; `launch` and `report` are called from threads, the rest from the loop."""

    def __init__(self, device: DeviceMonitor, digests: ModelDigests) -> None:
        self._device = device
        self._digests = digests
        self._loop = asyncio.get_running_loop()
        self._starting: concurrent.futures.Future[AppRun] | None = None
        self._followed: set[asyncio.Task[None]] = set()

    @property
    def device_id(self) -> DeviceId:
        return self._device.udid

    @property
    def start_deadline_s(self) -> float:
        return _LONGEST_START_S

    def report(self) -> DeviceReport | None:
        return self._device.report()

    def model_path(self, name: Name) -> Path:
        return model_path(self._device.settings.models_folder, name)

    def socket_path(self, folder: AttemptFolder) -> Path:
        return socket_folder(self._device.settings.agent_home) / socket_name(folder.attempt_id)

    def launch(self, folder: AttemptFolder, model_path: Path) -> RuntimeProcess:
        """In a thread; the work is done in the loop."""
        self._starting = asyncio.run_coroutine_threadsafe(self._start(folder, model_path), self._loop)
        try:
            return self._starting.result()
        except concurrent.futures.CancelledError as error:
            raise LaunchError("the start was given up", FailureReason.CANCELLED) from error

    def abort_launch(self) -> None:
        if self._starting is not None:
            self._starting.cancel()

    def adopt(self, folder: AttemptFolder) -> RuntimeProcess | None:
        """The app may run on although its device is away: it is followed until that is known."""
        record = read_run(folder.path)
        if record is None:
            return None
        future = asyncio.run_coroutine_threadsafe(self._adopt(folder, record), self._loop)
        return future.result()

    async def _start(self, folder: AttemptFolder, model_path: Path) -> AppRun:
        await self._device.turn.acquire()
        self._device.hold()
        try:
            record = await Start(self._device, folder, model_path, self._digests).run()
            return self._follow(folder, record)
        except BaseException:
            # What the worker was doing for us must end with us.
            await asyncio.shield(self._device.kill_worker())
            self._let_go()
            raise

    async def _adopt(self, folder: AttemptFolder, record: RunRecord) -> AppRun:
        await self._device.turn.acquire()
        self._device.hold()
        return self._follow(folder, record)

    def _follow(self, folder: AttemptFolder, record: RunRecord) -> AppRun:
        run = AppRun(self._device, folder, record, self.socket_path(folder))
        task = asyncio.create_task(run.follow(), name=f"follow-{folder.attempt_id}")
        self._followed.add(task)

        def done(ended: asyncio.Task[None]) -> None:
            self._followed.discard(ended)
            self._let_go()

        task.add_done_callback(done)
        return run

    def _let_go(self) -> None:
        self._device.let_go()
        if self._device.turn.locked():
            self._device.turn.release()
