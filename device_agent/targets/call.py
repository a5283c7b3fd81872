"""Calls into a device's library under a deadline: one that hangs costs a thread, never the agent.

The thread is a daemon of its own, not a worker of the pool: a few hanging devices would use the pool up,
and the agent could not even end.
"""

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

from device_agent.floor.errors import DeviceCallHangsError

R = TypeVar("R")


class DeviceCall(Generic[R]):
    """One running call. `result(timeout_s)` may be asked again: the call goes on meanwhile."""

    def __init__(self, function: Callable[[], R], name: str) -> None:
        """Starts at once; `name` is for the error. Needs a running loop."""
        self._function = function
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[R] = self._loop.create_future()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return self._future.done()

    async def result(self, timeout_s: float) -> R:
        """What the function returned or raised; DeviceCallHangsError, with its stack, after timeout_s."""
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._future)
        except TimeoutError as error:
            if self._future.done():
                raise
            raise DeviceCallHangsError(self._name, timeout_s, self._where()) from error

    def when_done(self, act: Callable[[R], None]) -> None:
        """Call `act` with a result that comes too late for whoever waited; a late error is dropped."""

        def late(future: asyncio.Future[R]) -> None:
            if not future.cancelled() and future.exception() is None:
                act(future.result())

        self._future.add_done_callback(late)

    def _work(self) -> None:
        try:
            value = self._function()
        except BaseException as error:
            self._tell(self._future.set_exception, error)
        else:
            self._tell(self._future.set_result, value)

    def _tell(self, act: Callable[..., None], value: object) -> None:
        try:
            self._loop.call_soon_threadsafe(act, value)
        except RuntimeError:
            # The loop is closed: nobody waits any more.
            return

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame, limit=8)) if frame is not None else ""
