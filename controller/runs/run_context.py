"""What the work on runs needs of its surroundings: the store, and a unit of work at the present moment."""

from contextlib import AbstractContextManager
from typing import Protocol

from controller.db.session import Sessions
from controller.db.unit_of_work import UnitOfWork


class RunContext(Protocol):
    """The API's context and the tasks' context both are one."""

    @property
    def sessions(self) -> Sessions:
        """The open database."""

    def unit_of_work(self) -> AbstractContextManager[UnitOfWork]:
        """A unit of work at this moment."""
