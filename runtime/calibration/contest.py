"""Which of some values is best, from rounds in which each is measured once: paired, dropped when hopeless,
over as soon as the choice is clear. Pure: costs come from outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

# From so many rounds on, one that says otherwise no longer keeps a choice from being clear.
_ROUNDS_FOR_ONE_DISSENT: Final = 6


@dataclass(frozen=True, slots=True)
class ContestRules:
    """tolerance: the smallest value whose cost is at most so much above the best one's is chosen.

    hopeless: a value that cost more than 1 + hopeless times the best in every one of two rounds is dropped.
    """

    tolerance: float
    hopeless: float = 0.3
    rounds_min: int = 3
    rounds_max: int = 9


class Contest:
    """Costs of `candidates` (smaller is better), round by round; ValueError without candidates."""

    def __init__(self, candidates: Sequence[int], rules: ContestRules) -> None:
        if not candidates:
            raise ValueError("a contest needs at least one candidate")
        self._rules = rules
        self._costs: dict[int, list[float]] = {value: [] for value in sorted(set(candidates))}
        self._dropped: set[int] = set()
        self._rounds = 0

    @property
    def rounds(self) -> int:
        """Rounds that are complete."""
        return self._rounds

    def next_round(self) -> tuple[int, ...]:
        """Who is still in it, in the order in which to measure: forward, then backward, so that a drift of
        the machine favours nobody."""
        alive = [value for value in self._costs if value not in self._dropped]
        return tuple(alive if self._rounds % 2 == 0 else reversed(alive))

    def record(self, costs: dict[int, float]) -> None:
        """A complete round: a positive cost for everyone of `next_round`. ValueError for anything else."""
        if set(costs) != set(self.next_round()) or min(costs.values()) <= 0:
            raise ValueError(f"a round needs a positive cost for each of {self.next_round()}, not {costs}")
        for value, cost in costs.items():
            self._costs[value].append(cost)
        self._rounds += 1
        if self._rounds >= 2:
            limit = 1 + (self._rules.tolerance if self._enough else self._rules.hopeless)
            self._dropped |= {
                value
                for value in self.next_round()
                if value != self.best and min(self.ratios(value, self.best)) > limit
            }

    @property
    def best(self) -> int:
        """The smallest median among those that are still in it."""
        return min(self.next_round(), key=lambda value: median(self._costs[value]))

    @property
    def chosen(self) -> int:
        """The smallest value within the tolerance of the best; needs a complete round."""
        best = self.best
        fitting = [value for value in self.next_round() if self._is_close(value, best)]
        return min([best, *fitting])

    @property
    def is_clear(self) -> bool:
        """Whether the rounds agree: everyone below the choice is worse, and the choice is not."""
        if not self._enough:
            return len(self._costs) == 1 and self._rounds > 0
        best, chosen = self.best, self.chosen
        below = [value for value in self.next_round() if value < chosen]
        return self._agrees(chosen, best, close=True) and all(
            self._agrees(value, best, close=False) for value in below
        )

    @property
    def is_over(self) -> bool:
        """Clear, or as long as it may take."""
        return self.is_clear or self._rounds >= self._rules.rounds_max

    def ratios(self, value: int, to: int) -> list[float]:
        """Per round in which `value` was measured, its cost by that of `to` in the same round."""
        pairs = zip(self._costs[value], self._costs[to], strict=False)
        return [cost / other for cost, other in pairs]

    @property
    def _enough(self) -> bool:
        return self._rounds >= self._rules.rounds_min

    def _is_close(self, value: int, best: int) -> bool:
        return median(self.ratios(value, best)) <= 1 + self._rules.tolerance

    def _agrees(self, value: int, best: int, *, close: bool) -> bool:
        ratios = self.ratios(value, best)
        dissent = sum((ratio <= 1 + self._rules.tolerance) != close for ratio in ratios)
        return dissent <= (1 if len(ratios) >= _ROUNDS_FOR_ONE_DISSENT else 0)
