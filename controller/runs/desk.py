"""What the work on runs needs of its surroundings: the store, and a unit of work at the present moment."""

from contextlib import AbstractContextManager
from typing import Protocol

from controller.attempts.turn import Turn
from controller.db.session import Sessions


class Desk(Protocol):
    """The API's context and the tasks' context both are one."""

    @property
    def sessions(self) -> Sessions:
        """The open database."""

    def turn(self) -> AbstractContextManager[Turn]:
        """A unit of work at this moment."""
