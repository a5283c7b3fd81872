"""Every metric of the catalogue has its one formula, and each formula gives the number worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.events import Stream
from contract.metrics import METRICS
from measures.facts.reader import attempt_facts
from measures.metrics import latency
from measures.metrics.formulas import Formulas, FormulaTwiceError, join
from measures.metrics.samples import FORMULAS_BY_SCOPE, SampleValue, samples_of
from tests.fakes.attempt_story import AttemptStory, CallStory, TrialStory

# Two agents; the second waits 60 ms in the queue and finds 80 of its 100 prompt tokens in the cache.
FIRST = CallStory("a1", admitted_ms=10.0, token_ms=(110.0, 120.0, 140.0, 200.0))
SECOND = CallStory("a2", admitted_ms=60.0, token_ms=(260.0,), cached_tokens=80)


def _samples(story: TrialStory) -> list[SampleValue]:
    told = AttemptStory()
    told.trial(story)
    return samples_of(attempt_facts(told.events).trials[0])


def _values(samples: list[SampleValue], metric: str) -> list[float]:
    return [sample.value for sample in samples if sample.metric == metric]


def test_catalogue_and_formulas_name_the_same_metrics() -> None:
    formulas = [name for table in FORMULAS_BY_SCOPE.values() for name in table]
    assert sorted(formulas) == sorted(METRICS)


def test_a_metric_with_two_formulas_is_an_error_whatever_they_describe() -> None:
    per_call = Formulas(calls={"ttft_ms": latency.ttft_ns})
    per_trial = Formulas(trials={"ttft_ms": latency.wall_ns})
    with pytest.raises(FormulaTwiceError, match="ttft_ms"):
        join(per_call, per_trial)


def test_each_formula_stands_under_the_scope_that_the_catalogue_says() -> None:
    for scope, table in FORMULAS_BY_SCOPE.items():
        for name in table:
            assert METRICS[name].scope is scope, name


WORKED_OUT: list[tuple[str, list[float]]] = [
    ("wall_s", [0.3]),
    ("ttft_ms", [110.0, 260.0]),
    ("agent_ttft_ms", [110.0, 260.0]),
    ("queue_ms", [10.0, 60.0]),
    ("prefill_ms", [100.0, 200.0]),
    ("itl_ms", [20.0]),
    ("itl_p95_ms", [56.0]),
    ("tpot_ms", [30.0]),
    ("e2e_ms", [200.0, 260.0]),
    ("output_tokens_per_s", [5 / 0.3]),
    ("decode_tokens_per_s", [3 / 0.09]),
    ("prefill_tokens_per_s", [1000.0, 100.0]),
    ("peak_footprint_mb", [400.0]),
    ("min_headroom_mb", [600.0]),
    ("kv_hit_rate_tokens", [0.4]),
    ("kv_hit_rate_requests", [0.5]),
    ("prompt_tokens_submitted", [200.0]),
    ("prompt_tokens_computed", [120.0]),
    ("preemptions", [0.0]),
    ("memory_warnings", [0.0]),
    ("failed_calls", [0.0]),
    ("kv_blocks_peak", []),
]


def test_every_metric_was_worked_out_by_hand() -> None:
    assert sorted(metric for metric, _ in WORKED_OUT) == sorted(METRICS)


@pytest.mark.parametrize(("metric", "expected"), WORKED_OUT)
def test_the_formula_gives_the_number_worked_out_by_hand(metric: str, expected: list[float]) -> None:
    samples = _samples(TrialStory(1, "paged", 1, calls=[FIRST, SECOND], finished_ms=300.0))
    assert _values(samples, metric) == pytest.approx(expected)


def test_the_most_blocks_in_use_at_once_are_the_peak() -> None:
    story = AttemptStory()
    story.control("trial_started", trial=1, arm="paged", pair=1, warmup=False)
    for used in (3, 9, 4):
        story.add(
            Stream.SAMPLES,
            "kv_sampled",
            trial=1,
            blocks_total=16,
            blocks_used=used,
            blocks_cached=0,
            blocks_free=16 - used,
            sequences_running=1,
            sequences_waiting=0,
        )
    story.control("trial_finished", 5, trial=1, status="completed")
    samples = samples_of(attempt_facts(story.events).trials[0])
    assert _values(samples, "kv_blocks_peak") == [9.0]


def test_a_call_of_one_token_has_no_gap_and_no_decode_rate() -> None:
    samples = _samples(TrialStory(1, "paged", 1, calls=[SECOND], finished_ms=300.0))
    for metric in ("itl_ms", "itl_p95_ms", "tpot_ms", "decode_tokens_per_s"):
        assert _values(samples, metric) == []


def test_a_call_without_a_token_has_no_ttft() -> None:
    samples = _samples(TrialStory(1, "paged", 1, calls=[CallStory(token_ms=())]))
    assert _values(samples, "ttft_ms") == []
    assert _values(samples, "e2e_ms") == [0.0]


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_trial_that_did_not_complete_has_counts_but_no_times(status: str) -> None:
    samples = _samples(TrialStory(1, "paged", 1, status=status, reason="jetsam"))
    assert {sample.metric for sample in samples} == {"preemptions", "memory_warnings", "failed_calls"}


def test_a_trial_without_an_end_has_counts_but_no_times() -> None:
    samples = _samples(TrialStory(1, "paged", 1, finished_ms=None))
    assert {METRICS[sample.metric].unit for sample in samples} == {"count"}


def test_every_sample_names_its_trial_arm_and_pair() -> None:
    samples = _samples(TrialStory(7, "paged", 4))
    assert {(sample.trial, sample.arm, sample.pair) for sample in samples} == {(7, "paged", 4)}


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=40))
def test_tpot_is_the_mean_gap_and_itl_lies_among_the_gaps(gaps_ms: list[int]) -> None:
    token_ms = [100.0]
    for gap in gaps_ms:
        token_ms.append(token_ms[-1] + gap)
    story = AttemptStory()
    story.trial(TrialStory(1, "paged", 1, calls=[CallStory(token_ms=token_ms)], finished_ms=10**6))
    (call,) = attempt_facts(story.events).trials[0].calls
    gaps_ns = [gap * 1_000_000 for gap in gaps_ms]
    assert latency.inter_token_latencies_ns(call) == gaps_ns
    assert latency.tpot_ns(call) == pytest.approx(sum(gaps_ns) / len(gaps_ns))
    for value in (latency.itl_ns(call), latency.itl_p95_ns(call)):
        assert value is not None
        assert min(gaps_ns) <= value <= max(gaps_ns)
