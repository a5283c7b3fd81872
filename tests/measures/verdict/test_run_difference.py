"""Two runs are compared when they measured the same thing; what differs is named."""

from dataclasses import replace
from typing import Any

import pytest

from contract.rest import DeviceReportView, Spread
from measures.verdict.device_report import device_report
from measures.verdict.run_difference import RunSide, compare, obstacles
from tests.fakes.identity import HOST
from tests.fakes.paired_attempt import comparison_plan, measured, paired_story

PLAN = comparison_plan(pairs=2)


def _side(run: str, digest: str = "sha256:a", **conditions: Any) -> RunSide:
    story = paired_story(PLAN)
    story.conditions(**conditions)
    report = device_report(replace(HOST, device_model="m", os_version="1"), PLAN, measured(story), {}, None)
    return RunSide(f"run_01J0000000000000000000000{run}", digest, report)


def _with_wall(side: RunSide, median: float) -> RunSide:
    return _with_spread(side, Spread(median=median, min=median, max=median, n=1))


def _with_spread(side: RunSide, wall_s: Spread) -> RunSide:
    arm = side.report.arms["paged"]
    arms = {"paged": arm.model_copy(update={"metrics": {"wall_s": wall_s}})}
    report: DeviceReportView = side.report.model_copy(update={"arms": arms})
    return RunSide(side.run_id, side.workload_digest, report)


def test_two_runs_of_the_same_thing_may_be_compared() -> None:
    assert obstacles(_side("0"), _side("1")) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"device_model": "other"},
        {"os_version": "7"},
        {"os_build": "x"},
        {"model_digest": "sha256:other"},
        {"virtual": True},
    ],
)
def test_another_device_system_or_model_stands_against_it(changed: dict[str, Any]) -> None:
    (obstacle,) = obstacles(_side("0"), _side("1", **changed))
    assert obstacle.startswith(next(iter(changed)))


def test_another_workload_stands_against_it() -> None:
    assert obstacles(_side("0"), _side("1", digest="sha256:b")) == ["workload_digest: sha256:a and sha256:b"]


def test_the_parameters_that_make_another_workload_are_named() -> None:
    five = replace(_side("0"), workload={"name": "shared-prefix", "agents": 5, "calls": 2})
    two = replace(
        _side("1", digest="sha256:b"), workload={"name": "shared-prefix", "agents": 2, "prefix_tokens": 64}
    )
    named = [
        "workload's agents: 5 and 2",
        "workload's calls: 2 and left to the default",
        "workload's prefix_tokens: left to the default and 64",
    ]
    assert obstacles(five, two)[1:] == named
    assert compare(five, two, "paged").differs[-3:] == named


def test_another_runtime_is_what_one_compares_and_is_named() -> None:
    baseline, run = _side("0"), _side("1", runtime_version="2", dtype="bfloat16")
    assert obstacles(baseline, run) == []
    assert compare(baseline, run, "paged").differs == [
        "runtime_version: 1 and 2",
        "dtype: float32 and bfloat16",
    ]


def test_options_that_the_compared_arm_ran_with_are_named_wherever_they_came_from() -> None:
    def side(run: str, threads: int, origin: str, serial_threads: int) -> RunSide:
        arms = {
            "serial": {"threads": serial_threads},
            "paged": {"threads": threads, "max_batch_sequences": 8, "option_origins": {"threads": origin}},
        }
        return _side(run, threads=serial_threads, arms=arms)

    asked, calibrated = side("0", 2, "asked", 2), side("1", 2, "calibrated", 1)
    assert compare(asked, calibrated, "paged").differs == []
    assert compare(asked, calibrated, "serial").differs == ["threads: 2 and 1"]
    assert compare(asked, side("1", 1, "default", 2), "paged").differs == ["threads: 2 and 1"]


def test_a_runtime_that_tells_nothing_of_its_arms_differs_by_what_both_tell() -> None:
    told = _side("1", arms={"paged": {"threads": 1, "device": "cpu"}})
    assert compare(_side("0"), told, "paged").differs == []


def test_the_change_is_of_the_medians_in_percent_of_the_baseline() -> None:
    comparison = compare(_with_wall(_side("0"), 2.0), _with_wall(_side("1"), 1.5), "paged")
    assert comparison.change_percent == {"wall_s": -25.0}
    assert comparison.metrics["wall_s"][0].median == 2.0


@pytest.mark.parametrize(
    ("before", "after", "trials", "beyond"),
    [
        ((1.0, 1.2), (1.3, 1.5), 4, True),
        ((1.3, 1.5), (1.0, 1.2), 4, True),
        ((1.0, 1.2), (1.2, 1.5), 4, False),
        ((1.0, 1.2), (1.3, 1.5), 3, None),
    ],
)
def test_a_difference_is_beyond_the_noise_where_the_trials_lie_apart(
    before: tuple[float, float], after: tuple[float, float], trials: int, beyond: bool | None
) -> None:
    sides = []
    for run, (low, high) in (("0", before), ("1", after)):
        spread = Spread(median=(low + high) / 2, min=low, max=high, n=trials)
        sides.append(_with_spread(_side(run), spread))
    assert compare(sides[0], sides[1], "paged").beyond_noise == {"wall_s": beyond}


def test_a_baseline_of_zero_has_no_percentage() -> None:
    comparison = compare(_with_wall(_side("0"), 0.0), _with_wall(_side("1"), 1.5), "paged")
    assert comparison.change_percent == {}
    assert "wall_s" in comparison.metrics
