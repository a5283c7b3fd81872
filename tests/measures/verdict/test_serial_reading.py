"""The reading of a serial baseline: each row of the table; it never contradicts itself or stays silent."""

import itertools
from dataclasses import replace

import pytest

from measures.errors import AnalysisInputError
from measures.verdict.serial_reading import (
    ArmMedians,
    Finding,
    Sentence,
    read_result,
)

F = Finding
SERIAL = ArmMedians(
    wall_s=100.0,
    ttft_ns=2e9,
    peak_footprint_bytes=800e6,
    decode_tokens_per_s=20.0,
    prompt_tokens_computed=1000.0,
)
FACTORS = {"down": 0.5, "level": 1.02, "up": 1.5, "missing": None}


def _scaled(value: float | None, move: str) -> float | None:
    factor = FACTORS[move]
    return None if factor is None or value is None else value * factor


def _read(wall: str, ttft: str, memory: str, rate: str, computed: float | None = 300.0) -> list[Sentence]:
    wall_s = _scaled(SERIAL.wall_s, wall)
    assert wall_s is not None
    candidate = ArmMedians(
        wall_s,
        _scaled(SERIAL.ttft_ns, ttft),
        _scaled(SERIAL.peak_footprint_bytes, memory),
        _scaled(SERIAL.decode_tokens_per_s, rate),
        prompt_tokens_computed=computed,
    )
    return read_result(SERIAL, candidate, level_percent=5.0)


@pytest.mark.parametrize(
    ("moves", "findings"),
    [
        (("down", "down", "down", "level"), {F.SCHEDULING_WORKS, F.PAGING_WORKS, F.RECOMPUTATION_AVOIDED}),
        (("down", "level", "level", "up"), {F.SCHEDULING_WORKS, F.DECODE_FASTER}),
        (("down", "up", "up", "down"), {F.FIRST_TOKEN_LATER, F.MEMORY_GREW, F.STREAMS_SLOWER}),
        (("down", "missing", "missing", "missing"), {F.NO_READING}),
        (("down", "missing", "missing", "level"), {F.RECOMPUTATION_AVOIDED}),
        (("level", "up", "level", "down"), {F.NO_READING}),
        (("level", "level", "down", "level"), {F.PAGING_WORKS}),
        (("up", "up", "level", "down"), {F.BATCH_LIMIT_TOO_HIGH}),
        (("up", "down", "down", "up"), {F.BATCH_LIMIT_TOO_HIGH, F.TIME_LOST_OUTSIDE_DECODE, F.PAGING_WORKS}),
    ],
)
def test_a_change_of_wall_ttft_memory_and_rate_is_read_as(
    moves: tuple[str, str, str, str], findings: set[Finding]
) -> None:
    sentences = _read(*moves)
    assert sentences[0].finding is F.WALL_TIME
    assert {sentence.finding for sentence in sentences[1:]} == findings


ALL_MOVES = list(itertools.product(("down", "level", "up"), *[tuple(FACTORS)] * 3))


@pytest.mark.parametrize("moves", ALL_MOVES, ids="-".join)
def test_every_change_is_read_and_never_both_as_a_gain_and_as_a_loss(
    moves: tuple[str, str, str, str],
) -> None:
    findings = [sentence.finding for sentence in _read(*moves)]
    assert len(findings) >= 2
    assert len(set(findings)) == len(findings)
    gains = {F.SCHEDULING_WORKS, F.RECOMPUTATION_AVOIDED, F.DECODE_FASTER} & set(findings)
    assert not (gains and F.BATCH_LIMIT_TOO_HIGH in findings)
    assert not {F.SCHEDULING_WORKS, F.FIRST_TOKEN_LATER} <= set(findings)
    assert not {F.PAGING_WORKS, F.MEMORY_GREW} <= set(findings)
    alone = {F.NO_DIFFERENCE, F.NO_READING, F.NOT_ESTABLISHED} & set(findings)
    assert not alone or len(findings) == 2


def test_a_sentence_carries_the_numbers_it_rests_on_in_the_units_that_are_shown() -> None:
    scheduling = next(s for s in _read("down", "down", "down", "level") if s.finding is F.SCHEDULING_WORKS)
    assert [change.metric for change in scheduling.rests_on] == ["wall time", "agent's TTFT"]
    assert "agent's TTFT 2000 to 1000 ms, -50.0 %" in scheduling.text


def test_the_first_sentence_gives_reduction_and_speed_and_no_word_of_tokens() -> None:
    assert _read("down", "level", "level", "up")[0].text == (
        "Wall time 100 s to 50 s: 50.0 % less time, 2.00 times as fast."
    )
    assert "50.0 % more time, 0.67 times as fast" in _read("up", "level", "level", "level")[0].text


@pytest.mark.parametrize(
    "moves", [("level", "level", "level", "level"), ("level", "missing", "level", "missing")]
)
def test_where_nothing_moved_there_is_no_difference(moves: tuple[str, str, str, str]) -> None:
    assert [each.finding for each in _read(*moves, computed=1000.0)] == [F.WALL_TIME, F.NO_DIFFERENCE]


@pytest.mark.parametrize("computed", [1000.0, None])
def test_no_recomputation_was_avoided_where_as_many_prompt_tokens_were_computed(
    computed: float | None,
) -> None:
    findings = {each.finding for each in _read("down", "down", "level", "level", computed)}
    assert findings == {F.WALL_TIME, F.SCHEDULING_WORKS}


def test_what_the_pairs_do_not_establish_has_no_cause() -> None:
    candidate = replace(SERIAL, wall_s=90.0, ttft_ns=1.5e9, peak_footprint_bytes=400e6)
    unclear = ("wall_s", "ttft_ns", "peak_footprint_bytes")
    _, sentence = read_result(SERIAL, candidate, 5.0, unclear)
    assert sentence.finding is F.NOT_ESTABLISHED
    assert "wall time 100 to 90 s, -10.0 %, not established" in sentence.text
    clear_memory = read_result(SERIAL, candidate, 5.0, unclear[:2])
    assert [each.finding for each in clear_memory] == [F.WALL_TIME, F.PAGING_WORKS]


def test_a_change_of_exactly_the_level_is_about_the_same() -> None:
    candidate = replace(SERIAL, wall_s=95.0)
    assert read_result(SERIAL, candidate, level_percent=5.0)[1].finding is F.NO_DIFFERENCE
    assert read_result(SERIAL, candidate, level_percent=4.9)[1].finding is F.SCHEDULING_WORKS


def test_sooner_for_every_agent_and_later_for_a_single_call_are_both_said() -> None:
    serial, paged = replace(SERIAL, call_ttft_ns=100e6), ArmMedians(50.0, 1e9, 800e6, 20.0, 160.3e6)
    said = {sentence.finding: sentence.text for sentence in read_result(serial, paged, level_percent=5.0)}
    assert "no agent's first token is later" in said[F.SCHEDULING_WORKS]
    assert "call's TTFT 100 to 160 ms, +60.3 %" in said[F.CALLS_WAIT_LONGER]
    assert F.CALLS_WAIT_LONGER not in {
        sentence.finding for sentence in _read("down", "down", "down", "level")
    }


def test_an_impossible_level_is_refused() -> None:
    with pytest.raises(AnalysisInputError, match="level_percent"):
        read_result(SERIAL, SERIAL, level_percent=-1.0)
