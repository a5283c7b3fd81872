"""Wakes claims that wait in this process. Only a nudge: a claim also looks by itself every quarter second."""

import asyncio
import threading


class Bell:
    """`ring` may be called from any thread; every `wait` that was begun before it ends."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def ring(self) -> None:
        """Wake everyone who waits."""
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for loop, rung in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(rung.set)

    async def wait(self, timeout_s: float) -> None:
        """Until the next ring, at most `timeout_s`."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(entry)
        try:
            async with asyncio.timeout(timeout_s):
                await entry[1].wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting.discard(entry)
