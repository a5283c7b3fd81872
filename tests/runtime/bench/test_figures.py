"""Figures of a trial: the controller's own numbers, from the same file; waste and percentiles by hand."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from contract.events import (
    CallArrived,
    KvSampled,
    Stream,
    TokenEmitted,
    TrialStarted,
    event_line,
    parse_event,
)
from measures.facts.reader import attempt_facts
from measures.metrics.arms import arm_report
from measures.metrics.samples import samples_of
from runtime.bench.figures import percentile_95, pool_waste_percent, trial_figures
from runtime.bench.trial_events import PoolInUse, TrialEvents, read_attempt
from runtime.measured.cli import main
from runtime.measured.emit import stream_of
from tests.fakes.attempt_specs import attempt_folder, attempt_spec, shared_prefix

MODES = ["serial", "serial_cached", "paged"]
SAME = {
    "wall_s": "wall_s",
    "itl_ms": "itl_p50_ms",
    "itl_p95_ms": "itl_p95_ms",
    "prompt_tokens_submitted": "prompt_tokens_submitted",
    "prompt_tokens_computed": "prompt_tokens_computed",
    "kv_hit_rate_tokens": "kv_hit_rate_tokens",
    "peak_footprint_mb": "peak_footprint_mb",
}


@pytest.fixture(scope="module")
def events_file(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = attempt_folder(tmp_path_factory.mktemp("attempt"), attempt_spec(shared_prefix(), MODES))
    socket = tmp_path_factory.mktemp("s") / "e"
    asked = ["--attempt-dir", str(folder), "--model-path", str(tiny_model), "--socket", str(socket)]
    assert main(asked) == 0
    return folder / "events.jsonl"


@pytest.mark.parametrize("mode", MODES)
def test_one_event_file_gives_the_controllers_figures(events_file: Path, mode: str) -> None:
    streams = defaultdict(list)
    for line in events_file.read_bytes().splitlines():
        event = parse_event(line)
        streams[stream_of(event)].append(event)
    facts = attempt_facts(streams)
    arm = mode.replace("_", "-")
    samples = [sample for trial in facts.trials for sample in samples_of(trial)]
    report = arm_report(arm, mode, 1, facts, samples)
    (trial,) = [each for each in read_attempt(events_file).trials if each.started.arm == arm]
    figures = trial_figures(trial)
    for catalogue_name, own_name in SAME.items():
        expected = report.metrics[catalogue_name].median
        assert getattr(figures, own_name) == pytest.approx(expected), catalogue_name
    assert {agent: seconds * 1e3 for agent, seconds in figures.ttft_s.items()} == pytest.approx(
        {agent: spread.median for agent, spread in report.agent_ttft_ms.items()}
    )
    blocks = report.metrics.get("kv_blocks_peak")
    assert figures.blocks_peak == (None if blocks is None else blocks.median)


def test_every_arm_wrote_the_same_tokens(events_file: Path) -> None:
    digests = {trial_figures(trial).output_sha256 for trial in read_attempt(events_file).trials}
    assert len(digests) == 1
    assert "" not in digests


def test_decode_steps_know_what_each_sequence_reads(events_file: Path) -> None:
    (serial,) = [each for each in read_attempt(events_file).trials if each.started.arm == "serial"]
    first_call = serial.decode_steps[:7]
    # 100 shared and 24 own tokens; the first of 8 output tokens comes from the prefill.
    assert [step.context_tokens for step in first_call] == [(124 + made,) for made in range(1, 8)]


def test_a_trial_without_its_end_has_no_figures(events_file: Path, tmp_path: Path) -> None:
    kept = [line for line in events_file.read_bytes().splitlines() if b'"trial_finished"' not in line]
    (tmp_path / "cut.jsonl").write_bytes(b"\n".join(kept) + b"\n")
    with pytest.raises(ValueError, match="did not complete"):
        trial_figures(read_attempt(tmp_path / "cut.jsonl").trials[0])


def test_a_file_without_conditions_is_refused(tmp_path: Path) -> None:
    line = event_line(TrialStarted(seq=1, t_mono_ns=1, trial=1, arm="paged", pair=1, warmup=False))
    (tmp_path / "events.jsonl").write_bytes(line + b"\n")
    with pytest.raises(ValueError, match="no conditions"):
        read_attempt(tmp_path / "events.jsonl")


@pytest.mark.parametrize(("values", "expected"), [([7.0], 7.0), (list(range(101)), 95.0), ([0.0, 10.0], 9.5)])
def test_the_95th_percentile_is_linear_between_neighbours(values: Sequence[float], expected: float) -> None:
    assert percentile_95(values) == pytest.approx(expected)
    if len(values) > 2:
        cuts = statistics.quantiles(values, n=20, method="inclusive")
        assert percentile_95(values) == pytest.approx(cuts[-1])


@pytest.mark.parametrize(
    ("blocks_used", "sequences", "shared", "expected"),
    [
        # 64 shared in 2 blocks, then 32 and 16 own tokens in one block each.
        (4, (96, 80), 64, 100 * 16 / 128),
        # A partial tail of the prefix stands in both sequences' own blocks.
        (4, (80, 80), 70, 100 * (128 - 64 - 16 - 16) / 128),
        # Alone, a sequence shares with nobody.
        (3, (96,), 64, 0.0),
    ],
)
def test_pool_waste_counts_slots_without_a_token(
    blocks_used: int, sequences: tuple[int, ...], shared: int, expected: float
) -> None:
    trial = TrialEvents(TrialStarted(seq=1, t_mono_ns=0, trial=1, arm="paged", pair=1, warmup=False))
    assert pool_waste_percent(trial, 32, shared) is None
    trial.pools = [PoolInUse(blocks_used, sequences)]
    assert pool_waste_percent(trial, 32, shared) == pytest.approx(expected)


def test_pool_waste_weighs_samples_by_their_slots() -> None:
    trial = TrialEvents(TrialStarted(seq=1, t_mono_ns=0, trial=1, arm="paged", pair=1, warmup=False))
    trial.pools = [PoolInUse(1, (16,)), PoolInUse(3, (96,))]
    assert pool_waste_percent(trial, 32, 0) == pytest.approx(100 * 16 / 128)


def test_only_samples_in_which_every_sequence_decodes_tell_the_waste() -> None:
    trial = TrialEvents(TrialStarted(seq=1, t_mono_ns=0, trial=1, arm="paged", pair=1, warmup=False))
    trial.take(CallArrived(seq=1, t_mono_ns=1, trial=1, agent="one", call=0, prompt_tokens=30))
    trial.take(_pool(9))
    assert (trial.blocks_peak, trial.pools) == (9, [])
    trial.take(TokenEmitted(seq=1, t_mono_ns=1, trial=1, agent="one", call=0, index=0, token_id=5))
    trial.take(_pool(2, running=2))
    trial.take(_pool(1))
    assert (trial.blocks_peak, trial.pools) == (9, [PoolInUse(1, (30,))])


def _pool(blocks_used: int, running: int = 1) -> KvSampled:
    return KvSampled(
        seq=1,
        t_mono_ns=1,
        trial=1,
        blocks_total=10,
        blocks_used=blocks_used,
        blocks_cached=0,
        blocks_free=10 - blocks_used,
        sequences_running=running,
        sequences_waiting=0,
    )


def test_the_streams_of_the_file_are_those_that_the_controller_reads(events_file: Path) -> None:
    kinds = {stream_of(parse_event(line)) for line in events_file.read_bytes().splitlines()}
    assert {Stream.CONTROL, Stream.SAMPLES, Stream.LOG} <= kinds
