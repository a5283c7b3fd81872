"""Things that are said to whoever listens now, with bounded queues that count what they lose."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

_MAX_WAITING: Final = 4096

ItemT = TypeVar("ItemT")


class Subscription(Generic[ItemT]):
    """What one listener has not taken yet. lost: how many were dropped because it is slow."""

    def __init__(self) -> None:
        self.lost = 0
        self._queue: asyncio.Queue[ItemT] = asyncio.Queue(_MAX_WAITING)

    def put(self, item: ItemT) -> None:
        """Never waits; counts a loss when the listener is far behind."""
        try:
            self._queue.put_nowait(item)
        except asyncio.QueueFull:
            self.lost += 1

    async def get(self) -> ItemT:
        return await self._queue.get()


class Topic(Generic[ItemT]):
    """One kind of thing and its listeners."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription[ItemT]] = set()

    @property
    def listeners(self) -> int:
        return len(self._subscriptions)

    def say(self, item: ItemT) -> None:
        for subscription in self._subscriptions:
            subscription.put(item)

    @contextmanager
    def listen(self) -> Iterator[Subscription[ItemT]]:
        """From now until the end of the block."""
        subscription: Subscription[ItemT] = Subscription()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)


class Topics(Topic[str]):
    """Darwin notifications of one device, by name."""
