"""What a peer answers: the runtime's own definitions, and no answer at all for other work than was asked."""

import argparse
import json
import time
from itertools import accumulate
from pathlib import Path

import pytest

from benchmarks.protocol.peer_protocol import CallPlan, Recorder, Work, answer, peak_rss_mb, percentile_95
from measures.metrics.latency import itl_p95_ns
from runtime.bench.figures import trial_figures
from runtime.bench.trial_events import read_attempt
from tests.fakes.attempt_story import AttemptStory, CallStory, TrialStory
from tests.fakes.trial_facts import trial_facts

WORK = Work("w", [1, 2], {"agent-1": [CallPlan([1, 2, 3], 4)], "agent-2": [CallPlan([1, 2, 4], 3)]})
TIMES_MS = {("agent-1", 0): [10, 20, 50, 55], ("agent-2", 0): [12, 13, 90]}


def recorded() -> Recorder:
    recorder = Recorder(began_ns=0, ended_ns=100_000_000)
    for key, times in TIMES_MS.items():
        recorder.asked(3)
        recorder.token_ns[key] = [ms * 1_000_000 for ms in times]
        recorder.token_ids[key] = [7] * len(times)
    return recorder


def options(tmp_path: Path) -> argparse.Namespace:
    return argparse.Namespace(mode="conc", dtype="float32", threads=2, answer=tmp_path / "answer.json")


def events_file(folder: Path) -> Path:
    """The same work as a runtime would have written it."""
    story = AttemptStory()
    story.conditions()
    calls = [
        CallStory(agent, call, token_ms=times, prompt_tokens=3) for (agent, call), times in TIMES_MS.items()
    ]
    story.trial(TrialStory(1, "paged", 1, calls=calls, finished_ms=100.0))
    path = folder / "events.jsonl"
    events = [event for stream in story.events.values() for event in stream]
    path.write_text("".join(event.model_dump_json() + "\n" for event in events))
    return path


def test_a_peers_figures_have_our_definitions(tmp_path: Path) -> None:
    answer(options(tmp_path), WORK, recorded(), {"peer": "p", "version": "1"})
    said = json.loads((tmp_path / "answer.json").read_text())
    (trial,) = read_attempt(events_file(tmp_path)).trials
    ours = trial_figures(trial)
    assert said["wall_s"] == pytest.approx(ours.wall_s)
    assert said["ttft_s"] == pytest.approx(ours.ttft_s)
    assert said["itl_p50_ms"] == pytest.approx(ours.itl_p50_ms)
    assert said["itl_p95_ms"] == pytest.approx(ours.itl_p95_ms)
    assert said["prompt_tokens"] == ours.prompt_tokens_submitted
    assert said["output_sha256"] == trial.output_sha256
    assert said["cached_tokens"] is None
    assert (said["peer"], said["output_tokens"]) == ("p", 7)


def test_a_call_that_stopped_early_is_no_result(tmp_path: Path) -> None:
    recorder = recorded()
    recorder.token_ids["agent-2", 0].pop()
    with pytest.raises(ValueError, match="agent-2, call 0: 2 tokens instead of 3"):
        answer(options(tmp_path), WORK, recorder, {})
    assert not (tmp_path / "answer.json").exists()


def test_tokens_get_the_time_at_which_they_come() -> None:
    recorder = Recorder()
    recorder.begin()
    recorder.made("a", 0, [5])
    time.sleep(0.002)
    recorder.made("a", 0, [6, 7])
    recorder.end()
    times = recorder.token_ns["a", 0]
    assert recorder.began_ns <= times[0] < times[1] <= times[2] <= recorder.ended_ns
    recorder.cached(3)
    recorder.cached(4)
    assert recorder.cached_tokens == 7


@pytest.mark.parametrize("gaps_ms", [[3], [1, 2], list(range(50)), [9, 1, 5, 5]])
def test_both_percentiles_are_one(gaps_ms: list[int]) -> None:
    times_ms = list(accumulate(gaps_ms, initial=1))
    (call,) = trial_facts({("a", 0): times_ms}).calls
    assert percentile_95([gap * 1_000_000 for gap in gaps_ms]) == pytest.approx(itl_p95_ns(call))


def test_memory_is_that_of_the_whole_tree() -> None:
    assert peak_rss_mb() > 1.0
