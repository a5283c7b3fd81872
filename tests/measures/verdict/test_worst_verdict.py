"""The gate's table: worst wins, and each word has its exit code."""

import itertools

import pytest

from contract.states import GateExit
from measures.statistics.effect import Direction
from measures.verdict.gate import EXIT_BY_VERDICT, gate_outcome
from measures.verdict.judge import Verdict, VerdictWord
from measures.verdict.pairs import Drops

W = VerdictWord


def _verdict(word: VerdictWord) -> Verdict:
    return Verdict(word, "for the table", Direction.LOWER, 2.0, 0.05, 10, 0, Drops(10, 0, 0, 0))


@pytest.mark.parametrize(
    ("words", "gate_word", "exit_code"),
    [
        ([], W.NO_DATA, GateExit.INFRASTRUCTURE),
        ([W.SAME], W.SAME, GateExit.PASS),
        ([W.SMALL_CHANGE, W.SAME], W.SMALL_CHANGE, GateExit.PASS),
        ([W.SAME, W.IMPROVED, W.SMALL_CHANGE], W.IMPROVED, GateExit.PASS),
        ([W.IMPROVED, W.INCONCLUSIVE], W.INCONCLUSIVE, GateExit.INCONCLUSIVE),
        ([W.IMPROVED, W.REGRESSED], W.REGRESSED, GateExit.REGRESSION),
        ([W.INCONCLUSIVE, W.REGRESSED], W.REGRESSED, GateExit.REGRESSION),
        ([W.SAME, W.NO_DATA], W.NO_DATA, GateExit.INFRASTRUCTURE),
        ([W.INCONCLUSIVE, W.NO_DATA], W.NO_DATA, GateExit.INFRASTRUCTURE),
        ([W.REGRESSED, W.NO_DATA], W.REGRESSED, GateExit.REGRESSION),
    ],
)
def test_the_worst_primary_metric_decides_in_every_order(
    words: list[VerdictWord], gate_word: VerdictWord, exit_code: GateExit
) -> None:
    for ordered in itertools.permutations(words):
        assert gate_outcome([_verdict(word) for word in ordered]) == (gate_word, exit_code)


def test_every_word_has_an_exit_code_and_the_codes_are_those_decided() -> None:
    assert set(EXIT_BY_VERDICT) == set(VerdictWord)
    assert [int(EXIT_BY_VERDICT[word]) for word in (W.SAME, W.REGRESSED, W.INCONCLUSIVE, W.NO_DATA)] == [
        0,
        1,
        3,
        4,
    ]
