"""Faults that wait for their moment: byte N of a push, event N of an app, a share of an install, a launch."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_MAX_ARMED: Final = 64

Action = Callable[[], Awaitable[None]]


class Progress(StrEnum):
    """What is counted, from the moment at which a fault is ordered."""

    PUSH_BYTES = "push"
    EVENTS = "event"
    INSTALL_PERCENT = "install"
    LAUNCHES = "launch"


@dataclass(slots=True)
class _Armed:
    progress: Progress
    left: int
    action: Action


class Triggers:
    """Armed actions of one device. An action runs to its end before the counted thing goes on."""

    def __init__(self) -> None:
        self._armed: dict[int, _Armed] = {}
        self._keys = itertools.count()
        self._delayed: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """How many were ordered and have not come to pass."""
        return len(self._armed) + len(self._delayed)

    def arm(self, progress: Progress, amount: int, action: Action) -> None:
        """`action` runs once `amount` more have been counted; OverflowError when too many wait."""
        if self.waiting >= _MAX_ARMED:
            raise OverflowError("too many faults wait already")
        self._armed[next(self._keys)] = _Armed(progress, max(1, amount), action)

    def arm_after(self, delay_s: float, action: Action) -> None:
        """`action` runs after so many seconds; OverflowError when too many wait."""
        if self.waiting >= _MAX_ARMED:
            raise OverflowError("too many faults wait already")

        async def wait() -> None:
            await asyncio.sleep(delay_s)
            await action()

        task = asyncio.create_task(wait())
        self._delayed.add(task)
        task.add_done_callback(self._delayed.discard)

    def room(self, progress: Progress) -> int | None:
        """How much may be counted before the next action, at least 1; None when nothing waits for it."""
        return min((each.left for each in self._armed.values() if each.progress is progress), default=None)

    async def advance(self, progress: Progress, amount: int) -> None:
        """Counts; runs the actions whose moment has come, to their end even if the counter is cancelled."""
        due = []
        for key, armed in list(self._armed.items()):
            if armed.progress is progress:
                armed.left -= amount
                if armed.left <= 0:
                    due.append(self._armed.pop(key).action)
        for action in due:
            await asyncio.shield(asyncio.ensure_future(action()))

    def disarm(self) -> None:
        """Forgets everything that waits, but not the fault that is being played."""
        self._armed.clear()
        for task in self._delayed:
            if task is not asyncio.current_task():
                task.cancel()

    async def clear(self) -> None:
        """disarm, and what was playing has ended on return."""
        self.disarm()
        await asyncio.gather(*self._delayed, return_exceptions=True)
