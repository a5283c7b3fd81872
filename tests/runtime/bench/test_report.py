"""The report: which runs count, what is said of disturbed ones, what is left out when an arm did not run."""

from itertools import pairwise
from pathlib import Path

import pytest

from contract.bench import BenchReport, BenchRequest
from runtime.bench.cli import measure_request
from runtime.bench.report import counted_runs
from runtime.bench.session import Run
from runtime.bench.trial_events import TrialEvents
from tests.fakes.machine_use import FakeMachine
from tests.fakes.trial_facts import trial_facts
from tests.runtime.bench.conftest import MakeRequest


def run_of(others: float, number: int) -> Run:
    return Run("paged", number, TrialEvents(trial_facts({}, started_ns=number)), others)


def test_the_least_disturbed_runs_count_in_the_order_in_which_they_ran() -> None:
    runs = [run_of(others, number) for number, others in enumerate((9.0, 0.5, 30.0, 0.7, 0.2), start=1)]
    assert [run.round for run in counted_runs(runs, 3)] == [2, 4, 5]
    assert [run.round for run in counted_runs(runs, 4)] == [1, 2, 4, 5]
    assert [run.round for run in counted_runs(runs[:2], 5)] == [1, 2]


@pytest.fixture
def report(make_request_for: MakeRequest, machine: FakeMachine) -> BenchReport:
    return measure_request(make_request_for(repeats={"serial": 1, "serial_cached": 1, "paged": 2}))


def test_a_whole_report_is_of_one_piece(report: BenchReport) -> None:
    arms = report.arms
    assert set(arms) == {"serial", "serial_cached", "paged"}
    assert [arms[mode].wall_s.n for mode in ("serial", "serial_cached", "paged")] == [1, 1, 2]
    assert arms["serial"].kv_hit_rate_tokens == 0.0
    # Three agents of two calls: 110 tokens, then 110 + 6 + 12.
    submitted = 3 * (110 + 128)
    computed = 100 + 3 * (10 + 13)
    assert {arm.prompt_tokens_submitted for arm in arms.values()} == {submitted}
    assert arms["serial"].prompt_tokens_computed == submitted
    assert arms["paged"].prompt_tokens_computed == computed
    assert arms["paged"].kv_hit_rate_tokens == pytest.approx(1 - computed / submitted)
    assert all(arm.ttft_first_s.median <= arm.ttft_last_s.median for arm in arms.values())
    assert all(arm.itl_p50_ms.median <= arm.itl_p95_ms.median for arm in arms.values())
    assert report.outputs_agree is True


def test_what_follows_from_the_arms_is_theirs(report: BenchReport) -> None:
    walls = {mode: arm.wall_s.median for mode, arm in report.arms.items()}
    assert report.reduction_vs_serial_percent == pytest.approx((1 - walls["paged"] / walls["serial"]) * 100)
    assert report.wall_vs_bound == pytest.approx(walls["paged"] / report.bound.wall_s)
    steps = report.decode_step_vs_bandwidth
    assert steps.batch_1 is not None
    assert steps.batch_5 is not None
    assert steps.batch_5 > 0
    assert report.worst_gap_vs_median_itl is not None
    assert report.worst_gap_vs_median_itl >= 1.0
    assert report.pool_waste_percent is not None
    assert 0 <= report.pool_waste_percent < 100
    assert report.event_cost_percent is not None
    assert report.event_processor_percent is not None
    assert 0 < report.event_processor_percent < 100
    assert report.footprint_above_weights_and_live_kv_mb is not None


def test_a_quiet_machine_contaminates_nothing(report: BenchReport) -> None:
    assert report.contaminated_runs == 0
    assert report.others_cpu_percent == pytest.approx(0.0)
    assert all(later.round >= earlier.round for earlier, later in pairwise(report.runs[:-1]))


def test_runs_that_were_disturbed_are_said_to_be(make_request_for: MakeRequest, machine: FakeMachine) -> None:
    machine.others_percent = 50.0
    asked: BenchRequest = make_request_for(
        repeats={"paged": 1}, without_events_repeats=1, arriving_prefill_repeats=0
    )
    report = measure_request(asked)
    assert report.contaminated_runs == 2
    assert report.event_cost_percent is None
    assert report.others_cpu_percent == pytest.approx(50.0)


def test_what_was_not_measured_is_none_and_not_a_number(
    make_request_for: MakeRequest, machine: FakeMachine, tmp_path: Path
) -> None:
    asked = make_request_for(repeats={"serial": 1}, without_events_repeats=0, arriving_prefill_repeats=0)
    report = measure_request(asked)
    assert set(report.arms) == {"serial"}
    missing = report.model_dump()
    for name in (
        *("reduction_vs_serial_percent", "reduction_vs_serial_cached_percent", "wall_vs_bound"),
        *("worst_gap_vs_median_itl", "pool_waste_percent", "event_cost_percent"),
        *("event_processor_percent", "footprint_above_weights_and_live_kv_mb"),
    ):
        assert missing[name] is None, name
    assert report.decode_step_vs_bandwidth.batch_5 is None
    assert report.bound.wall_s > 0
