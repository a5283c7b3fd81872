"""The round robin: the best first and in turn, disturbed runs again up to a bound, failures not for ever."""

from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.plan import BEST, MAX_FAILURES, OTHERS, Config, expected_s, next_config

ALL = (*BEST, *OTHERS)


def line(config: Config, others: float = 0.5, **changes: Any) -> dict[str, Any]:
    return {
        "config": config.name,
        "result": {"wall_s": 1.0},
        "others_cpu_percent": others,
        "took_s": 2.0,
    } | changes


def order(others: float = 0.5) -> list[str]:
    lines: list[dict[str, Any]] = []
    while config := next_config(ALL, lines, 5.0, extra_runs=2):
        lines.append(line(config, others))
    return [each["config"] for each in lines]


def test_the_best_take_turns_and_the_others_come_after_them() -> None:
    ran = order()
    best = [config.name for config in BEST]
    assert ran[: 5 * len(best)] == best * 5
    assert not set(best) & set(ran[5 * len(best) :])
    assert {name: ran.count(name) for name in ran} == {config.name: config.wanted for config in ALL}


def test_disturbed_runs_are_repeated_up_to_a_bound() -> None:
    ran = order(others=50.0)
    assert {name: ran.count(name) for name in ran} == {config.name: config.wanted + 2 for config in ALL}


def test_a_peer_that_fails_is_left_alone_after_a_while() -> None:
    lines: list[dict[str, Any]] = []
    while config := next_config(ALL, lines, 5.0, extra_runs=0):
        fails = config.peer == "vllm_cpu"
        lines.append(line(config, result=None) if fails else line(config))
    failed = [each["config"] for each in lines if each["result"] is None]
    assert {failed.count(name) for name in failed} == {MAX_FAILURES}
    assert len(lines) - len(failed) == sum(config.wanted for config in ALL if config.peer != "vllm_cpu")


def test_a_session_goes_on_where_it_was_broken_off() -> None:
    whole = order()
    for done in (0, 5, 17):
        lines = [line(Config(*name.split("/"), 1, 1.0)) for name in whole[:done]]
        config = next_config(ALL, lines, 5.0, extra_runs=2)
        assert config is not None
        assert config.name == whole[done]


@settings(max_examples=25, deadline=None)
@given(outcomes=st.lists(st.sampled_from(["clean", "disturbed", "failed"]), min_size=300, max_size=300))
def test_whatever_happens_it_ends(outcomes: list[str]) -> None:
    lines: list[dict[str, Any]] = []
    for outcome in islice(outcomes, 300):
        config = next_config(ALL, lines, 5.0, extra_runs=2)
        if config is None:
            break
        result = None if outcome == "failed" else {"wall_s": 1.0}
        lines.append(line(config, 50.0 if outcome == "disturbed" else 0.0, result=result))
    assert next_config(ALL, lines, 5.0, extra_runs=2) is None
    assert len(lines) <= sum(config.wanted + 2 + MAX_FAILURES for config in ALL)


def test_the_next_run_is_expected_to_take_what_the_slowest_took() -> None:
    config = BEST[0]
    assert expected_s(config, []) == config.expected_s
    assert expected_s(config, [line(config, took_s=3.0), line(config, took_s=9.0), line(BEST[1])]) == 9.0
