"""Reads requests, carries each out under its deadline in a task of its own, writes answers and notices."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from contract.model import ContractModel
from device_agent.ios_worker import protocol
from device_agent.ios_worker.apps import Apps
from device_agent.ios_worker.bridge import AppBridge
from device_agent.ios_worker.faults import detail_of, kind_of
from device_agent.ios_worker.files import AppFiles, Progress
from device_agent.ios_worker.identity import Identity
from device_agent.ios_worker.protocol import (
    Answered,
    CallFailure,
    Method,
    Nothing,
    Noticed,
    Progressed,
    Request,
    WorkerErrorKind,
)
from device_agent.ios_worker.reports import CrashReports
from device_agent.ios_worker.session import Session
from device_agent.ios_worker.watching import Watching

Handler = Callable[[Any, Progress], Awaitable[ContractModel]]

_PROGRESS_EVERY_S: Final = 0.25
# After these nothing on the old connections can be trusted.
_DROPPING: Final = frozenset(
    {
        *(WorkerErrorKind.STALLED, WorkerErrorKind.DISCONNECTED, WorkerErrorKind.TUNNEL),
        *(WorkerErrorKind.UNTRUSTED, WorkerErrorKind.DENIED),
    }
)


class Worker:
    """One device's calls. `write` takes one line without its newline."""

    def __init__(
        self, udid: str, images: Path, write: Callable[[bytes], None], end: Callable[[], None]
    ) -> None:
        """Connects nothing before the first call. end: this process should end."""
        self._write = write
        self._end = end
        self._session = Session(udid, lambda pid, code, signal: self._watching.exited(pid, code, signal))
        identity = Identity(self._session)
        self._watching = Watching(self._session, identity, self._tell)
        self._bridge = AppBridge(udid)
        self._handlers = self._table(identity, Apps(self._session, images))

    def _table(self, identity: Identity, apps: Apps) -> Mapping[str, tuple[Method[Any, Any], Handler]]:
        files, reports = AppFiles(self._session), CrashReports(self._session)
        rows: list[tuple[Method[Any, Any], Handler]] = [
            (protocol.PING, _pong),
            (protocol.DESCRIBE, identity.describe),
            (protocol.CONDITIONS, identity.conditions),
            (protocol.MOUNT_IMAGE, apps.mount_image),
            (protocol.OPEN_TUNNEL, apps.open_tunnel),
            (protocol.DEVELOPER, apps.developer),
            (protocol.APP, apps.app),
            (protocol.INSTALL, apps.install),
            (protocol.PUSH, files.push),
            (protocol.WRITE, files.write),
            (protocol.FETCH, files.fetch),
            (protocol.LIST, files.list),
            (protocol.REMOVE, files.remove),
            (protocol.LAUNCH, apps.launch),
            (protocol.SIGNAL, apps.signal),
            (protocol.WATCH, self._watching.watch),
            (protocol.BRIDGE, self._bridge.bridge),
            (protocol.REPORTS, reports.reports),
            (protocol.RELEASE, self._release),
        ]
        return {method.name: (method, handler) for method, handler in rows}

    async def carry_out(self, request: Request) -> None:
        """One call, to its answer; never raises but for cancellation."""
        loop = asyncio.get_running_loop()
        told_s = loop.time()

        def progress(done: int, total: int) -> None:
            nonlocal told_s
            limit.reschedule(loop.time() + request.deadline_s)
            if loop.time() - told_s >= _PROGRESS_EVERY_S or done >= total:
                told_s = loop.time()
                self._send(Progressed(id=request.id, done=done, total=total))

        try:
            method, handler = self._handlers[request.method]
            async with asyncio.timeout(request.deadline_s) as limit:
                answer = await handler(method.request.model_validate(request.params), progress)
            self._send(Answered(id=request.id, answer=answer.model_dump(mode="json")))
        except (KeyError, ValidationError) as error:
            self._fail(request, WorkerErrorKind.PROTOCOL, detail_of(error))
        except Exception as error:
            kind = kind_of(error)
            if kind in _DROPPING:
                await self._drop()
            self._fail(request, kind, detail_of(error))
            if kind is WorkerErrorKind.BROKEN:
                self._end()

    async def close(self) -> None:
        """Close everything, within the time for a goodbye."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(protocol.GOODBYE_S):
                await self._bridge.stop()
                await self._watching.stop()
                await self._session.drop()

    async def _release(self, nothing: Nothing, progress: Progress) -> Nothing:
        await self._bridge.stop()
        await self._watching.stop()
        await self._session.release()
        return Nothing()

    async def _drop(self) -> None:
        await self._watching.stop()
        await self._session.drop()

    def _fail(self, request: Request, kind: WorkerErrorKind, detail: str) -> None:
        self._send(Answered(id=request.id, error=CallFailure(kind=kind, detail=detail)))

    def _tell(self, notice: protocol.Notice) -> None:
        self._send(Noticed(notice=notice))

    def _send(self, message: ContractModel) -> None:
        self._write(message.model_dump_json().encode())


async def _pong(nothing: Nothing, progress: Progress) -> Nothing:
    return nothing


async def serve(udid: str, images: Path, lines_in: int, lines_out: int) -> None:
    """Until lines_in ends: that is how a worker learns that its agent is gone."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    calls: set[asyncio.Task[None]] = set()
    worker = Worker(udid, images, lambda line: _write_whole(lines_out, line + b"\n"), ended.set)

    def begin(line: bytes) -> None:
        try:
            request = Request.model_validate_json(line)
        except ValidationError:
            # Whoever sends such a line is not our agent.
            ended.set()
            return
        call = asyncio.create_task(worker.carry_out(request))
        calls.add(call)
        call.add_done_callback(calls.discard)

    threading.Thread(target=_read, args=(lines_in, loop, begin, ended), daemon=True).start()
    await ended.wait()
    for call in list(calls):
        call.cancel()
    await worker.close()


def _read(
    lines_in: int, loop: asyncio.AbstractEventLoop, begin: Callable[[bytes], None], ended: asyncio.Event
) -> None:
    """In a thread: a loop that hangs in the library must not keep the worker of a dead agent alive."""
    with os.fdopen(lines_in, "rb") as lines, contextlib.suppress(RuntimeError):
        for line in lines:
            loop.call_soon_threadsafe(begin, line)
        loop.call_soon_threadsafe(ended.set)
    threading.Event().wait(2 * protocol.GOODBYE_S)
    os._exit(1)


def _write_whole(descriptor: int, line: bytes) -> None:
    try:
        while line:
            line = line[os.write(descriptor, line) :]
    except OSError:
        # Nobody reads any more; the end of the input follows.
        return
