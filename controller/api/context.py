"""What every route works with; the composition root puts one into `app.state.context`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from random import Random, SystemRandom
from typing import cast

from fastapi import Request

from controller.api.bell import Bell
from controller.db.session import Sessions, read_only, unit_of_work
from controller.db.unit_of_work import UnitOfWork
from controller.settings import Settings


@dataclass(frozen=True, slots=True)
class ApiContext:
    """Database, settings, clock (aware UTC), and the bell that wakes waiting claims in this process."""

    sessions: Sessions
    settings: Settings
    now: Callable[[], datetime]
    chance: Random = field(default_factory=SystemRandom)
    bell: Bell = field(default_factory=Bell)
    after_commit: Callable[[], None] = lambda: None
    """Called after each unit of work: whoever publishes the outbox looks at once."""

    @contextmanager
    def unit_of_work(self) -> Iterator[UnitOfWork]:
        """A unit of work at this moment."""
        with unit_of_work(self.sessions) as session:
            yield UnitOfWork(session, self.now(), self.settings.times, self.chance)
        self.after_commit()

    @contextmanager
    def view(self) -> Iterator[UnitOfWork]:
        """The same for reading: it takes no lock, and what it changes is thrown away."""
        with read_only(self.sessions) as session:
            yield UnitOfWork(session, self.now(), self.settings.times, self.chance)


def context_of(request: Request) -> ApiContext:
    """The context of the application that serves this request."""
    return cast(ApiContext, request.app.state.context)
