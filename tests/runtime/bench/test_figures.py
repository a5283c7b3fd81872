"""Figures of a trial: the controller's own numbers, from the same file; waste and percentiles by hand."""

from pathlib import Path

import pytest

from contract.events import (
    KvSampled,
    TrialStarted,
    event_line,
    parse_event,
)
from runtime.bench.figures import pool_waste_percent, trial_figures
from runtime.bench.trial_events import PoolInUse, TrialEvents, read_attempt
from runtime.measured.cli import main
from tests.fakes.attempt_specs import attempt_folder, attempt_spec, shared_prefix
from tests.fakes.trial_facts import trial_facts

MODES = ["serial", "serial_cached", "paged"]


@pytest.fixture(scope="module")
def events_file(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = attempt_folder(tmp_path_factory.mktemp("attempt"), attempt_spec(shared_prefix(), MODES))
    socket = tmp_path_factory.mktemp("s") / "e"
    asked = ["--attempt-dir", str(folder), "--model-path", str(tiny_model), "--socket", str(socket)]
    assert main(asked) == 0
    return folder / "events.jsonl"


def test_the_peak_of_the_pool_is_that_of_its_trace_and_not_of_samples_50_ms_apart(events_file: Path) -> None:
    paged = _trial(events_file, "paged")
    lines = map(parse_event, events_file.read_bytes().splitlines())
    sampled = [
        each.blocks_used for each in lines if isinstance(each, KvSampled) and each.trial == paged.facts.trial
    ]
    assert paged.facts.blocks_peak is not None
    assert trial_figures(paged).blocks_peak == paged.facts.blocks_peak >= max(sampled)
    assert trial_figures(_trial(events_file, "serial")).blocks_peak is None


def test_every_arm_wrote_the_same_tokens(events_file: Path) -> None:
    digests = {trial.output_sha256 for trial in read_attempt(events_file).trials}
    assert len(digests) == 1
    assert "" not in digests


def test_decode_steps_know_what_each_sequence_reads(events_file: Path) -> None:
    first_call = _trial(events_file, "serial").decode_steps[:7]
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
    assert pool_waste_percent(_with_pools(), 32, shared) is None
    trial = _with_pools(PoolInUse(blocks_used, sequences))
    assert pool_waste_percent(trial, 32, shared) == pytest.approx(expected)


def test_pool_waste_weighs_samples_by_their_slots() -> None:
    trial = _with_pools(PoolInUse(1, (16,)), PoolInUse(3, (96,)))
    assert pool_waste_percent(trial, 32, 0) == pytest.approx(100 * 16 / 128)


def test_only_samples_in_which_every_sequence_decodes_tell_the_waste(events_file: Path) -> None:
    for pool in _trial(events_file, "paged").pools:
        # 124 prompt tokens and at least one that was made, whose KV is there from the second on.
        assert all(tokens >= 124 for tokens in pool.sequence_tokens)


def _trial(events_file: Path, arm: str) -> TrialEvents:
    (trial,) = [each for each in read_attempt(events_file).trials if each.facts.arm == arm]
    return trial


def _with_pools(*pools: PoolInUse) -> TrialEvents:
    return TrialEvents(trial_facts({}), pools=pools)
