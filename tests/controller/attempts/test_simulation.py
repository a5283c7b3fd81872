"""The invariants of the lease protocol hold in bad weather, and each rule is needed for that.

FARM_SEEDS=3000 makes the proof longer; a failing seed is in the test's name.
"""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from controller.attempts import results
from controller.ingest import store
from tests.controller.attempts.simulation import Outline, Simulation
from tests.controller.attempts.world import BrokenInvariantError

SEEDS = int(os.environ.get("FARM_SEEDS", "30"))
# Each missing rule was noticed within this many seeds, most within two.
SEEDS_TO_NOTICE = 40

_outlines: list[Outline] = []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_invariant_holds_whatever_is_lost_late_or_doubled(seed: int) -> None:
    _outlines.append(Simulation(seed).run())


@pytest.mark.slow
def test_the_weather_was_bad_enough_to_prove_something() -> None:
    if len(_outlines) < 20:
        pytest.skip("needs the seeds of the test above, in the same process")
    attempts = sum((outline.attempts for outline in _outlines), Counter[str]())
    errors = frozenset[str]().union(*(outline.errors_seen for outline in _outlines))
    assert attempts["lost"] + attempts["orphaned"] > 0
    assert attempts["cancelled"] + attempts["errored"] > 0
    assert attempts.total() > sum(outline.jobs.total() for outline in _outlines)
    assert sum(outline.salvaged for outline in _outlines) > 0
    assert {"events-gap", "events-missing", "lease-gone"} <= errors


def test_the_same_seed_gives_the_same_history() -> None:
    assert Simulation(3).run() == Simulation(3).run()


def _accept_every_event(*_: Any) -> None:
    return None


def _count_every_late_result(*_: Any) -> bool:
    return True


def _keep_overlap(turn: Any, attempt_id: Any, batch: Any, next_seq: Any) -> Any:
    return batch.lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "rule", "without", "broken"),
    [
        (results, "_still_counts", _count_every_late_result, "I1"),
        (results, "_require_complete", _accept_every_event, "I3"),
        (store, "_require_no_gap", _accept_every_event, "I3"),
        (store, "_without_overlap", _keep_overlap, "I3"),
    ],
    ids=["newer grant and fence at the result", "last_seq at the result", "gap refusal", "overlap removal"],
)
def test_without_one_rule_an_invariant_breaks(
    module: Any, rule: str, without: Callable[..., Any], broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, rule, without)
    with pytest.raises(BrokenInvariantError, match=f"^{broken}"):
        run_seeds(SEEDS_TO_NOTICE)


def run_seeds(count: int) -> None:
    """One simulation after the other."""
    for seed in range(count):
        Simulation(seed).run()
