"""Uvicorn on a socket that we bound, stopped by signals that end in exit code 0, with a deadline."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import uvicorn

GRACE_S: Final = 5
"""How long open requests may take once the server is to stop."""


class UvicornServer(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again after its clean stop, and end in an error code."""

    def __init__(self, config: uvicorn.Config) -> None:
        config.timeout_graceful_shutdown = GRACE_S
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: see `serve_until_stopped`."""
        yield

    def serve_until_stopped(
        self,
        sock: socket.socket,
        on_stop: Callable[[], None],
        beside: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Serve until SIGINT or SIGTERM. A second signal does not wait for open requests.

        on_stop: called first of all at the signal. beside: runs while the server serves, is cancelled at the
        signal and awaited before the server stops, so that what it tidies up can still talk to the server.
        """
        asyncio.run(self._serve_here(sock, on_stop, beside))

    async def _serve_here(
        self,
        sock: socket.socket,
        on_stop: Callable[[], None],
        beside: Callable[[], Awaitable[None]] | None,
    ) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            if stop.is_set():
                self.force_exit = True
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
        serving = asyncio.create_task(self.serve(sockets=[sock]))
        companion = asyncio.ensure_future(self._once_started(beside)) if beside is not None else None
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        on_stop()
        if companion is not None:
            companion.cancel()
            await asyncio.wait({companion})
        self.should_exit = True
        stopped.cancel()
        await serving

    async def _once_started(self, beside: Callable[[], Awaitable[None]]) -> None:
        while not self.started:
            await asyncio.sleep(0.02)
        await beside()
