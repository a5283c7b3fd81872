"""What a peer answers: the runtime's own definitions, and no answer at all for other work than was asked."""

import argparse
import json
import time
from pathlib import Path

import pytest

from benchmarks.protocol.peer_protocol import CallPlan, Recorder, Work, answer, peak_rss_mb, percentile_95
from contract.events import CallFinished, TrialFinished, TrialStarted
from runtime.bench import figures
from runtime.bench.trial_events import TrialEvents

WORK = Work("w", [1, 2], {"agent-1": [CallPlan([1, 2, 3], 4)], "agent-2": [CallPlan([1, 2, 4], 3)]})
TIMES_MS = {("agent-1", 0): [10, 20, 50, 55], ("agent-2", 0): [12, 13, 90]}


def recorded() -> Recorder:
    recorder = Recorder(began_ns=0, ended_ns=100_000_000)
    for key, times in TIMES_MS.items():
        recorder.asked(3)
        recorder.token_ns[key] = [ms * 1_000_000 for ms in times]
        recorder.token_ids[key] = list(range(len(times)))
    return recorder


def options(tmp_path: Path) -> argparse.Namespace:
    return argparse.Namespace(mode="conc", dtype="float32", threads=2, answer=tmp_path / "answer.json")


def test_a_peers_figures_have_our_definitions(tmp_path: Path) -> None:
    answer(options(tmp_path), WORK, recorded(), {"peer": "p", "version": "1"})
    said = json.loads((tmp_path / "answer.json").read_text())
    trial = TrialEvents(TrialStarted(seq=1, t_mono_ns=0, trial=1, arm="paged", pair=1, warmup=False))
    trial.finished = TrialFinished(seq=2, t_mono_ns=100_000_000, trial=1, status="completed", reason=None)
    trial.token_ns, trial.token_ids = recorded().token_ns, recorded().token_ids
    trial.calls = {key: finished(*key, len(times)) for key, times in TIMES_MS.items()}
    ours = figures.trial_figures(trial)
    assert said["wall_s"] == pytest.approx(ours.wall_s)
    assert said["ttft_s"] == pytest.approx(ours.ttft_s)
    assert said["itl_p50_ms"] == pytest.approx(ours.itl_p50_ms)
    assert said["itl_p95_ms"] == pytest.approx(ours.itl_p95_ms)
    assert said["prompt_tokens"] == ours.prompt_tokens_submitted
    assert said["output_sha256"] == ours.output_sha256
    assert said["cached_tokens"] is None
    assert (said["peer"], said["output_tokens"]) == ("p", 7)


def finished(agent: str, call: int, output_tokens: int) -> CallFinished:
    return CallFinished(
        seq=3,
        t_mono_ns=1,
        trial=1,
        agent=agent,
        call=call,
        finish_reason="length",
        prompt_tokens=3,
        cached_tokens=0,
        computed_tokens=3,
        output_tokens=output_tokens,
        text="",
    )


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


@pytest.mark.parametrize("values", [[3], [1, 2], list(range(50)), [9, 1, 5, 5]])
def test_both_percentiles_are_one(values: list[int]) -> None:
    assert percentile_95(values) == pytest.approx(figures.percentile_95(values))


def test_memory_is_that_of_the_whole_tree() -> None:
    assert peak_rss_mb() > 1.0
