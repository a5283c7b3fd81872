"""What prefills leave in the heap is given back once they are over."""

from collections.abc import Sequence

from runtime.engine.generator import Fact, StepRan
from runtime.host.heap import trim


class PrefillLeavings:
    """Trims once a prefill is over: decode needs next to nothing of what its passes worked in."""

    def __init__(self) -> None:
        self._are_there = False

    def look(self, facts: Sequence[Fact]) -> bool:
        """True when memory was given back: the step behind these facts was the first without prefill."""
        for step in (fact for fact in facts if isinstance(fact, StepRan)):
            if step.prefill:
                self._are_there = True
            elif self._are_there:
                self._are_there = False
                trim()
                return True
        return False
