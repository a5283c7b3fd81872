"""The connections of one device, opened when first needed: lockdown, tunnel, instruments, the app's files.

Any of them may hang or die at any time. Then all are dropped, and the next call opens them anew: after a call
that was given up, an answer may still be under way on its connection, and the next call would take it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from packaging.version import InvalidVersion, Version
from pymobiledevice3.dtx import DTXContext, dtx_on_invoke
from pymobiledevice3.dtx_service import DtxService
from pymobiledevice3.exceptions import InvalidServiceError, PyMobileDevice3Exception
from pymobiledevice3.lockdown import UsbmuxLockdownClient, create_using_usbmux
from pymobiledevice3.lockdown_service_provider import LockdownServiceProvider
from pymobiledevice3.remote.userspace_tunnel import UserspaceRsdTunnel
from pymobiledevice3.services.dvt.instruments.dvt_provider import DvtProvider
from pymobiledevice3.services.dvt.instruments.process_control import ProcessControlService
from pymobiledevice3.services.house_arrest import HouseArrestService

from device_agent.ios_worker.faults import WorkerError, kind_of
from device_agent.ios_worker.protocol import WorkerErrorKind

TUNNEL_SINCE: Final = Version("17.0")
_CLOSE_DEADLINE_S: Final = 2.0
# Shown at once to the person at the device; whether it was tapped is asked again later.
_PAIR_TIMEOUT_S: Final = 0.0

ExitHandler = Callable[[int, int | None, int | None], None]


class _ObservedProcesses(ProcessControlService):
    """The library only logs how a process ended."""

    def __init__(self, ctx: DTXContext) -> None:
        super().__init__(ctx)
        self.told: ExitHandler | None = None

    @dtx_on_invoke("processWithPID:terminatedWithExitCode:orCrashingSignal:")
    async def _on_process_terminated(
        self, pid: int, exit_code: int | None, crashing_signal: int | None
    ) -> None:
        if self.told is not None:
            self.told(int(pid), exit_code, crashing_signal)


class Processes(DtxService[_ObservedProcesses]):
    """Launch, signal and observe, over one DTX channel."""


class Session:
    """One device by its serial. `on_exit`: (pid, exit code, signal) of each observed process that ended."""

    def __init__(self, udid: str, on_exit: ExitHandler) -> None:
        self.udid = udid
        self._on_exit = on_exit
        self._opening = asyncio.Lock()
        self._lockdown: UsbmuxLockdownClient | None = None
        self._tunnel: UserspaceRsdTunnel | None = None
        self._instruments: DvtProvider | None = None
        self._processes: Processes | None = None
        self._files: tuple[str, HouseArrestService] | None = None

    async def lockdown(self) -> UsbmuxLockdownClient:
        """The paired client; asks the person at the device for trust and does not wait for the answer."""
        async with self._opening:
            return await self._open_lockdown()

    async def provider(self) -> LockdownServiceProvider:
        """Through which developer services are reached: the tunnel from iOS 17 on, lockdown before."""
        async with self._opening:
            return await self._open_provider()

    async def instruments(self) -> DvtProvider:
        """One connection to the instruments daemon for the whole life: each costs the device something."""
        await self.processes()
        if self._instruments is None:
            raise WorkerError(WorkerErrorKind.DISCONNECTED, "the connection was dropped meanwhile")
        return self._instruments

    async def processes(self) -> Processes:
        """The process control channel."""
        async with self._opening:
            if self._processes is None:
                await self._open_instruments()
            if self._processes is None:
                raise WorkerError(WorkerErrorKind.DISCONNECTED, "the connection was dropped meanwhile")
            return self._processes

    async def files(self, bundle_id: str) -> HouseArrestService:
        """The app's container over plain lockdown, which is faster than the tunnel on every iOS."""
        async with self._opening:
            if self._files is not None and self._files[0] == bundle_id:
                return self._files[1]
            await self._close_files()
            lockdown = await self._open_lockdown()
            service = await HouseArrestService.create(lockdown, bundle_id, documents_only=True)
            self._files = (bundle_id, service)
            return service

    async def drop(self) -> None:
        """Close everything, whatever state it is in; never raises, never hangs."""
        tunnel, self._tunnel = self._tunnel, None
        instruments, self._instruments = self._instruments, None
        lockdown, self._lockdown = self._lockdown, None
        self._processes = None
        await self._close_files()
        if instruments is not None:
            await closed(instruments.close())
        if tunnel is not None:
            await closed(tunnel.aclose())
        if lockdown is not None:
            await closed(lockdown.close())

    async def release(self) -> None:
        """Close what a run needed: the app's files. Lockdown and instruments are used again."""
        await self._close_files()

    async def _close_files(self) -> None:
        files, self._files = self._files, None
        if files is not None:
            await closed(files[1].aclose())

    async def _open_lockdown(self) -> UsbmuxLockdownClient:
        if self._lockdown is None:
            self._lockdown = await create_using_usbmux(
                serial=self.udid, connection_type="USB", autopair=True, pair_timeout=_PAIR_TIMEOUT_S
            )
        return self._lockdown

    async def _open_provider(self) -> LockdownServiceProvider:
        lockdown = await self._open_lockdown()
        if version_of(lockdown.product_version) < TUNNEL_SINCE:
            return lockdown
        if self._tunnel is not None and self._tunnel.rsd is not None:
            return self._tunnel.rsd
        # The library keeps one tunnel per process: the dead one has to be gone before the next.
        if self._tunnel is not None:
            await closed(self._tunnel.aclose())
        # Pairing was done above with a limit; here it would wait for ever, and the fallback asks the network.
        self._tunnel = UserspaceRsdTunnel(self.udid, autopair=False, remotepairing_fallback=False)
        try:
            return await self._tunnel.aopen()
        except Exception as error:
            self._tunnel = None
            known = kind_of(error)
            if known in {WorkerErrorKind.LOCKED, WorkerErrorKind.UNTRUSTED, WorkerErrorKind.DISCONNECTED}:
                raise
            raise WorkerError(WorkerErrorKind.TUNNEL, f"{type(error).__name__}: {error}") from error

    async def _open_instruments(self) -> None:
        provider = await self._open_provider()
        try:
            instruments = DvtProvider(provider)
            await instruments.connect()
        except InvalidServiceError as error:
            await self._forget_tunnel()
            raise WorkerError(
                WorkerErrorKind.IMAGE_MISSING, "the device offers no developer service"
            ) from error
        processes = Processes(instruments)
        await processes.connect()
        processes.service.told = self._on_exit
        self._instruments, self._processes = instruments, processes

    async def _forget_tunnel(self) -> None:
        """Its list of services is a snapshot: after an image was mounted only a new tunnel shows them."""
        tunnel, self._tunnel = self._tunnel, None
        if tunnel is not None:
            await closed(tunnel.aclose())


async def closed(closing: Awaitable[None]) -> None:
    """Close one thing within its deadline; what does not close is left to the process's end."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE_DEADLINE_S):
            await closing


def version_of(text: str) -> Version:
    """An iOS version; 0 for one that cannot be read."""
    try:
        return Version(text)
    except (InvalidVersion, TypeError):
        return Version("0")


async def value_of(client: UsbmuxLockdownClient, domain: str | None, key: str | None) -> object:
    """A lockdown value; None for one that the device does not have or does not tell."""
    try:
        return await client.get_value(domain, key)
    except PyMobileDevice3Exception as error:
        if kind_of(error) in {WorkerErrorKind.PROTOCOL, WorkerErrorKind.UNSUPPORTED}:
            return None
        raise
