"""Claims that wait for work in this process. One look into the database is for all of them, and is taken when
something has changed: a claim came, the signal was given, a retry became due; and now and then all the same.

While it waits a claim holds no thread and no connection: there may be thousands.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Final

import structlog
from starlette.concurrency import run_in_threadpool

from controller.db.session import Sessions, read_only
from controller.db.unit_of_work import UnitOfWork
from controller.errors import FarmError
from controller.protocol.leases import Outlook, WaitingClaim, outlook
from controller.states.times import FarmTimes

Look = Callable[[Sequence[WaitingClaim]], Outlook]
Close = Callable[[Sequence[WaitingClaim]], frozenset[str]]

# A look is followed by a pause of this many times its own duration: looking takes a fifth of a core at most.
_PAUSE_PER_LOOK: Final = 4.0
# Nobody is in a hurry to hear that there is nothing: an idle farm writes a few times a second at most.
_GATHER_S: Final = 0.25

_log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class _Waiter:
    """One claim: `looked` once a look was for it too, `over` once it need not wait any longer."""

    claim: WaitingClaim
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    worth_it: bool = False
    error: Exception | None = None


class WaitingClaims:
    """`signal` and `close` may be called from any thread; claims wait in one event loop at a time."""

    def __init__(self, look: Look, now: Callable[[], datetime], look_every_s: float) -> None:
        """`look` is called in a thread. `look_every_s`: how long a signal that was lost may go unnoticed."""
        self._look = look
        self._now = now
        self._look_every_s = look_every_s
        self._waiters: list[_Waiter] = []
        self._signalled = False
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.Task[None] | None = None
        self._closed = False
        self.looks: Counter[str] = Counter()
        """How many looks there were, by their occasion: claim, signal, time."""

    def signal(self) -> None:
        """Work or a device became free: look for every claim."""
        self._signalled = True
        self._wake()

    def close(self) -> None:
        """The process is about to end: whoever waits stops, and nobody waits again."""
        self._closed = True
        self._wake()

    async def opportunity(self, claim: WaitingClaim, timeout_s: float) -> bool:
        """True as soon as the claim is worth a try; False when it has an answer already, when the time is
        over and when the process ends. There is one look at least, whatever the time; its error is raised.
        """
        if self._closed:
            return False
        waiter = _Waiter(claim)
        self._waiters.append(waiter)
        self._watch_here()
        try:
            await waiter.looked.wait()
            if waiter.error is not None:
                raise waiter.error
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await waiter.over.wait()
            return waiter.worth_it
        finally:
            self._waiters.remove(waiter)
            if not self._waiters:
                self._changed.set()

    def _watch_here(self) -> None:
        if self._watch is None or self._watch.done():
            self._changed = asyncio.Event()
            self._loop = asyncio.get_running_loop()
            self._watch = self._loop.create_task(self._keep_looking())
        self._changed.set()

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits in it
                loop.call_soon_threadsafe(self._changed.set)

    async def _keep_looking(self) -> None:
        """For as long as a claim waits."""
        clock = asyncio.get_running_loop().time
        due_s = clock() + self._look_every_s
        while self._waiters and not self._closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._changed.wait()
            self._changed.clear()
            started_s = clock()
            occasion = "signal" if self._signalled else "time" if started_s >= due_s else "claim"
            self._signalled = False
            waiters = [each for each in self._waiters if occasion != "claim" or not each.looked.is_set()]
            if waiters and not self._closed:
                self.looks[occasion] += 1
                changes_in_s = await self._look_for(waiters)
                if occasion != "claim":
                    due_s = started_s + self._look_every_s
                due_s = min(due_s, started_s + changes_in_s)
                await asyncio.sleep(_PAUSE_PER_LOOK * (clock() - started_s))
        for waiter in self._waiters:
            waiter.looked.set()
            waiter.over.set()

    async def _look_for(self, waiters: Sequence[_Waiter]) -> float:
        """In how many seconds time alone makes another look worth it."""
        try:
            found = await run_in_threadpool(self._look, [waiter.claim for waiter in waiters])
        except Exception as error:
            # Claims that have waited already go on: the next look may succeed.
            log = _log.warning if isinstance(error, FarmError) else _log.exception
            log("claims_not_looked_at", detail=str(error))
            for waiter in waiters:
                waiter.error = None if waiter.looked.is_set() else error
                waiter.looked.set()
            return self._look_every_s
        for waiter in waiters:
            waiter.worth_it = waiter.claim.claim_id in found.worth_it
            if waiter.worth_it or waiter.claim.claim_id in found.answered:
                waiter.over.set()
            waiter.looked.set()
        if found.changes_at is None:
            return self._look_every_s
        return max(0.0, (found.changes_at - self._now()).total_seconds())


class ClosingClaims:
    """Claims that got nothing, remembered as such: those of a moment together, in one transaction."""

    def __init__(self, close: Close) -> None:
        """`close` is called in a thread; it returns the ids of those that have another answer."""
        self._close = close
        self._ending: list[tuple[WaitingClaim, asyncio.Future[bool]]] = []
        self._task: asyncio.Task[None] | None = None

    async def end(self, claim: WaitingClaim) -> bool:
        """True once it is remembered; False when it has another answer, which a repetition gets."""
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ending.append((claim, ended))
        if len(self._ending) == 1:
            self._task = asyncio.create_task(self._end_all())
        return await ended

    async def _end_all(self) -> None:
        await asyncio.sleep(_GATHER_S)
        ending, self._ending = self._ending, []
        try:
            answered = await run_in_threadpool(self._close, [claim for claim, _ in ending])
        except Exception as error:
            for _, ended in ending:
                if not ended.done():
                    ended.set_exception(error)
        else:
            for claim, ended in ending:
                if not ended.done():
                    ended.set_result(claim.claim_id not in answered)


def look_into(sessions: Sessions, times: FarmTimes, now: Callable[[], datetime], chance: Random) -> Look:
    """A look into this database."""

    def look(claims: Sequence[WaitingClaim]) -> Outlook:
        with read_only(sessions) as session:
            return outlook(UnitOfWork(session, now(), times, chance), claims)

    return look
