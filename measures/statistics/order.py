"""The order in which trials run. It decides more than the test does.

On real iPhone traces all-A-then-all-B gives 25 to 39 % false alarms at a nominal 5 %, ABBA or a random order
in each pair 1 to 8 %; plain ABAB keeps a bias because B is always the later one. Simulated in
tests/measures/statistics/test_order.py.
"""

import random
from dataclasses import dataclass
from enum import StrEnum

from measures.errors import AnalysisInputError


class Design(StrEnum):
    """How the two arms of a pair are ordered. Neither all-A-then-all-B nor ABAB is offered."""

    ABBA = "abba"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial: position (from 1, in running order), pair (from 1; None for a warm-up) and arm."""

    position: int
    pair: int | None
    arm: str
    warmup: bool


def plan_trials(
    arms: tuple[str, str], pairs: int, warmups: int, seed: int, design: Design
) -> list[PlannedTrial]:
    """`warmups` trials of each arm in turn, then `pairs` pairs; the two trials of a pair are neighbours.

    ABBA: the seed draws which arm begins, then the order turns with each pair. RANDOM: the seed draws each
    pair's order. The same arguments give the same plan on every machine.
    """
    if arms[0] == arms[1]:
        raise AnalysisInputError(f"arms: both are called {arms[0]!r}")
    if pairs < 1 or warmups < 0:
        raise AnalysisInputError(f"pairs {pairs} and warmups {warmups}: at least one pair, no negative count")
    sequence: list[tuple[int | None, str]] = [(None, arm) for _ in range(warmups) for arm in arms]
    for number, turned in enumerate(_turns(pairs, seed, design), start=1):
        sequence += [(number, arm) for arm in (reversed(arms) if turned else arms)]
    return [
        PlannedTrial(position=position, pair=pair, arm=arm, warmup=pair is None)
        for position, (pair, arm) in enumerate(sequence, start=1)
    ]


def _turns(pairs: int, seed: int, design: Design) -> list[bool]:
    """For each pair, whether the second arm goes first."""
    # Only random() is promised to give the same numbers from the same seed in later versions of Python.
    generator = random.Random(seed)
    if design is Design.RANDOM:
        return [generator.random() < 0.5 for _ in range(pairs)]
    first_turned = generator.random() < 0.5
    return [first_turned != (number % 2 == 1) for number in range(pairs)]
