"""What every route works with; the composition root puts one into `app.state.context`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from random import Random, SystemRandom
from typing import cast

from fastapi import Request

from controller.api.waiting_claims import ClosingClaims, WaitingClaims, look_into
from controller.db.session import Sessions, read_only, unit_of_work
from controller.db.unit_of_work import UnitOfWork
from controller.protocol.leases import WaitingClaim, close_claims
from controller.settings import Settings


@dataclass(frozen=True, slots=True)
class ApiContext:
    """Database, settings, clock (aware UTC), and the claims that wait in this process."""

    sessions: Sessions
    settings: Settings
    now: Callable[[], datetime]
    chance: Random = field(default_factory=SystemRandom)
    after_commit: Callable[[], None] = lambda: None
    """Called after each unit of work: whoever publishes the outbox looks at once."""
    waiting_claims: WaitingClaims = field(init=False)
    closing_claims: ClosingClaims = field(init=False)

    def __post_init__(self) -> None:
        """Claims wait for what is committed here."""
        look = look_into(self.sessions, self.settings.times, self.now, self.chance)
        waiting = WaitingClaims(look, self.now, self.settings.claim_look_s)
        object.__setattr__(self, "waiting_claims", waiting)
        object.__setattr__(self, "closing_claims", ClosingClaims(self._close_claims))
        self.sessions.work_signal.callbacks.append(waiting.signal)

    @contextmanager
    def unit_of_work(self) -> Iterator[UnitOfWork]:
        """A unit of work at this moment."""
        with unit_of_work(self.sessions) as session:
            yield UnitOfWork(session, self.now(), self.settings.times, self.chance)
        self.after_commit()

    def _close_claims(self, claims: Sequence[WaitingClaim]) -> frozenset[str]:
        with self.unit_of_work() as work:
            return close_claims(work, claims)

    @contextmanager
    def view(self) -> Iterator[UnitOfWork]:
        """The same for reading: it takes no lock, and what it changes is thrown away."""
        with read_only(self.sessions) as session:
            yield UnitOfWork(session, self.now(), self.settings.times, self.chance)


async def context_of(request: Request) -> ApiContext:
    """The context of the application that serves this request."""
    return cast(ApiContext, request.app.state.context)
