"""Wakes claims that wait in this process. Only a nudge: a claim also looks by itself every quarter second."""

import asyncio
import threading


class Bell:
    """`ring` and `close` may be called from any thread; every `wait` that was begun before them ends."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        """The process is about to end: answer now, do not wait."""
        return self._closed

    def ring(self) -> None:
        """Wake everyone who waits."""
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for loop, rung in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(rung.set)

    def close(self) -> None:
        """Wake everyone, and let nobody wait again."""
        self._closed = True
        self.ring()

    async def wait(self, timeout_s: float) -> None:
        """Until the next ring, at most `timeout_s`; not at all once closed."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(entry)
        try:
            if self._closed:
                return
            async with asyncio.timeout(timeout_s):
                await entry[1].wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting.discard(entry)
