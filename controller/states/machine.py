"""A state machine is a table; this is its type."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from controller.errors import InvalidTransitionError

State = TypeVar("State", bound=StrEnum)
Cause = TypeVar("Cause", bound=StrEnum)


@dataclass(frozen=True)
class Machine(Generic[State, Cause]):
    """(state, cause) to next state; a pair that is not in the table cannot happen.

    `initial` is the state in which a row is made. `meanings` has one sentence per cause, for docs/.
    """

    name: str
    initial: State
    transitions: Mapping[tuple[State, Cause], State]
    meanings: Mapping[Cause, str]

    def next_state(self, state: State, cause: Cause) -> State:
        """InvalidTransitionError when the table has no such edge."""
        target = self.transitions.get((state, cause))
        if target is None:
            raise InvalidTransitionError(self.name, state.value, cause.value)
        return target

    def allows(self, state: State, cause: Cause) -> bool:
        """Whether the table has this edge."""
        return (state, cause) in self.transitions

    @property
    def terminal(self) -> frozenset[State]:
        """States that no edge leaves for another one."""
        states = type(self.initial)
        left = {source for (source, _), target in self.transitions.items() if source != target}
        return frozenset(states) - left

    def sources(self, cause: Cause) -> frozenset[State]:
        """States in which the cause may happen."""
        return frozenset(state for state, known in self.transitions if known == cause)
