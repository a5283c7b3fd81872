"""pymobiledevice3, unmodified, as the client of the tests."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pymobiledevice3.dtx import dtx_on_invoke
from pymobiledevice3.dtx_service import DtxService
from pymobiledevice3.lockdown import create_using_usbmux
from pymobiledevice3.remote.userspace_tunnel import UserspaceRsdTunnel
from pymobiledevice3.services.afc import AfcService
from pymobiledevice3.services.dvt.instruments.dvt_provider import DvtProvider
from pymobiledevice3.services.dvt.instruments.process_control import ProcessControl, ProcessControlService
from pymobiledevice3.services.house_arrest import HouseArrestService

from contract.ios_app import BUNDLE_ID, ENV_ATTEMPT_FOLDER, ENV_MODEL_FOLDER, ENV_PORT

PORT = 9123
ATTEMPT = "attempts/one"
DEADLINE_S = 40.0


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """One loop per test, with a deadline."""
    return asyncio.run(asyncio.wait_for(work, DEADLINE_S))


@asynccontextmanager
async def lockdown_of(udid: str, **options: Any) -> AsyncIterator[Any]:
    """A session; pairs if that is needed. The library's own cache of pair records is not touched."""
    with tempfile.TemporaryDirectory() as cache:
        arguments = {"pair_timeout": 5, "pairing_records_cache_folder": Path(cache), **options}
        client = await create_using_usbmux(serial=udid, **arguments)
        try:
            yield client
        finally:
            await client.close()


class Observer(ProcessControlService):
    """Keeps what the library only logs."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.exits: asyncio.Queue[tuple[int, int | None, int | None]] = asyncio.Queue()

    @dtx_on_invoke("processWithPID:terminatedWithExitCode:orCrashingSignal:")
    async def _ended(self, pid: int, code: int | None, number: int | None) -> None:
        self.exits.put_nowait((pid, code, number))


class ObservedProcesses(DtxService[Observer]):
    """process control with exits."""


@asynccontextmanager
async def instruments_of(provider: Any) -> AsyncIterator[tuple[Any, Any]]:
    """(connection, process control)."""
    async with DvtProvider(provider) as connection, ProcessControl(connection) as control:
        yield connection, control


@asynccontextmanager
async def tunnel_of(udid: str) -> AsyncIterator[Any]:
    """The userspace tunnel; there is one at a time in a process."""
    tunnel = UserspaceRsdTunnel(serial=udid, autopair=False, remotepairing_fallback=False)
    try:
        yield await tunnel.aopen()
    finally:
        await tunnel.aclose()


async def documents_of(lockdown: Any) -> AfcService:
    """AFC in the app's container."""
    return await HouseArrestService.create(lockdown, BUNDLE_ID, documents_only=True)


def environment(plan: str = "{}", port: int = PORT) -> dict[str, str]:
    """Of the app."""
    return {
        ENV_ATTEMPT_FOLDER: ATTEMPT,
        ENV_MODEL_FOLDER: "models/none",
        ENV_PORT: str(port),
        "FAKE_APP": plan,
    }


async def connect_to_app(lockdown: Any, port: int = PORT) -> Any:
    """The app's stream, once it listens."""
    from pymobiledevice3.exceptions import ConnectionFailedError

    for _ in range(200):
        try:
            return await lockdown.create_service_connection(port)
        except ConnectionFailedError:
            await asyncio.sleep(0.05)
    raise AssertionError("the app does not listen")
