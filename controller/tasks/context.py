"""What every task works with."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random, SystemRandom

from controller.db.session import Sessions, unit_of_work
from controller.db.unit_of_work import UnitOfWork
from controller.settings import Settings


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Database, settings, clock and chance; a RunContext (controller/runs/context.py)."""

    sessions: Sessions
    settings: Settings
    now: Callable[[], datetime] = utc_now
    chance: Random = field(default_factory=SystemRandom)

    @contextmanager
    def unit_of_work(self) -> Iterator[UnitOfWork]:
        """A unit of work at this moment."""
        with unit_of_work(self.sessions) as session:
            yield UnitOfWork(session, self.now(), self.settings.times, self.chance)
