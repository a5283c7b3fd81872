"""The control socket: one JSON request per line, one answer per line; for the owner of the folder only."""

import asyncio
from typing import Final

from pydantic import ValidationError

from contract.virtual_devices import (
    CONTROL_REQUEST,
    ControlAnswer,
    FaultRequest,
    StopRequest,
)
from device_agent.virtual.emulator import Emulator
from device_agent.virtual.errors import BadRequestError, VirtualError
from device_agent.virtual.faults.faults import order_fault
from device_agent.virtual.views import emulator_view

_MAX_LINE_BYTES: Final = 64 * 1024


class ControlServer:
    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        """OSError when the socket cannot be bound."""
        path = self._emulator.control_socket
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, path, limit=_MAX_LINE_BYTES)
        path.chmod(0o600)

    async def close(self) -> None:
        """Ends every client and removes the socket."""
        if self._server is None:
            return
        self._server.close()
        for task in list(self._clients):
            task.cancel()
        if self._clients:
            await asyncio.wait(list(self._clients), timeout=5.0)
        self._emulator.control_socket.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # asyncio calls this inside a task
        self._clients.add(task)
        try:
            while line := await reader.readline():
                answer = await self._answer(line)
                writer.write(answer.model_dump_json().encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, asyncio.CancelledError):
            # The client left, its line never ends, or we are closing.
            pass
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(self, line: bytes) -> ControlAnswer:
        try:
            try:
                request = CONTROL_REQUEST.validate_json(line)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = ".".join(map(str, first["loc"]))
                raise BadRequestError(f"{place or 'request'}: {first['msg']}") from error
            if isinstance(request, FaultRequest):
                await order_fault(self._emulator, request)
            elif isinstance(request, StopRequest):
                self._emulator.stopping.set()
        except VirtualError as error:
            return ControlAnswer(ok=False, error=error.code, detail=str(error))
        except (OSError, OverflowError, ValueError) as error:
            # The real disk is full, or too many faults wait.
            return ControlAnswer(ok=False, error="not-done", detail=f"{type(error).__name__}: {error}")
        return ControlAnswer(ok=True, view=emulator_view(self._emulator))
