"""What the report of a run says."""

import json
from typing import Any

from plotly.io.json import to_json_plotly

from contract.rest import GateView, RunReport
from contract.states import GateExit, TargetKind
from dashboard.pages.run_report import arm_order, report_body
from tests.fakes import dashboard_story as story
from tests.fakes.dashboard_viewer import components, text_of


def _sent(report: RunReport) -> Any:
    """The body as the browser gets it."""
    return json.loads(to_json_plotly(report_body(report)))


def _text(**device: Any) -> str:
    return text_of(_sent(story.run_report(1, devices=[story.device_report(1, **device)])))


def test_reduction_and_speed_up_stand_side_by_side_with_both_walls() -> None:
    text = _text()
    assert "Reduction 62.5 % less time paged against serial, medians" in text
    assert "Speed-up 2.67 times as fast paged against serial, medians" in text
    assert "Wall time, serial 18.4 s 17.8 to 19.1, n 6" in text
    assert "Wall time, paged 6.90 s" in text


def test_the_gate_shows_verdict_exit_code_and_reason() -> None:
    gate = GateView(
        verdict="regression", exit_code=GateExit.REGRESSION, reason="wall_s rose on bench-host", metrics=[]
    )
    text = text_of(_sent(story.run_report(1, gate=gate)))
    assert "Gate: regression (exit code 1). wall_s rose on bench-host." in text


def test_each_verdict_shows_interval_p_pairs_and_the_smallest_detectable_effect() -> None:
    row = "Wall time (s) improved −62.4 % −63.9 % to −60.8 % 0.0312 6 2.6 % 2 %"
    assert row in _text(verdicts=[story.verdict()])
    assert "5 (1 dropped)" in _text(verdicts=[story.verdict(pairs=5, pairs_dropped=1)])


def test_an_interval_of_few_pairs_says_what_it_covers() -> None:
    few = _text(verdicts=[story.verdict(pairs=2, interval_confidence=0.5)])
    assert "−63.9 % to −60.8 % (covers 50 %)" in few
    assert "covers" not in _text(verdicts=[story.verdict(interval_confidence=0.96875)])


def test_a_verdict_without_numbers_shows_why() -> None:
    unknown = {"change_percent": None, "interval_percent": None, "p_value": None, "mde_percent": None}
    verdict = story.verdict(verdict="inconclusive", pairs=1, reason="1 pair is not enough", **unknown)
    text = _text(verdicts=[verdict])
    assert "inconclusive – – – 1 – 2 % 1 pair is not enough" in text


def test_budget_reading_texts_and_conditions_are_there() -> None:
    text = _text()
    for told in (
        "Memory budget, serial",
        "weights 538 MB float32, measured",
        "Memory budget, paged",
        "Scheduling works",
        "What the agents wrote",
        "runtime name dynofarm-runtime",
        "extra governor: performance",
        "memory 8 240 MB",
        "bench-host, host, Linux 6.1",
    ):
        assert told in text
    assert "screen on" not in text


def test_failures_say_what_to_try_and_are_left_out_where_there_are_none() -> None:
    told = "jetsam (2 times): killed. What to try: lower the KV pool"
    assert told in _text(failures=[told])
    assert "What went wrong" not in _text()


def test_every_figure_is_about_one_device_model() -> None:
    devices = [story.device_report(1, device_model=model) for model in ("iPhone14,5", "iPhone15,2")]
    graphs = [
        one["props"]["figure"]["layout"]["title"]["text"]
        for one in components(_sent(story.run_report(1, devices=devices)))
        if one["type"] == "Graph"
    ]
    assert len(graphs) == 6
    assert [("iPhone14,5" in title, "iPhone15,2" in title) for title in graphs] == (
        [(True, False)] * 3 + [(False, True)] * 3
    )


def test_a_virtual_device_is_marked_in_its_heading_and_in_every_figure() -> None:
    body = _sent(story.run_report(1, devices=[story.device_report(1, virtual=True, kind=TargetKind.VIRTUAL)]))
    assert "nothing here was measured on a phone" in text_of(body)
    titles = [
        one["props"]["figure"]["layout"]["title"]["text"]
        for one in components(body)
        if one["type"] == "Graph"
    ]
    assert titles
    assert all("(virtual\u00a0device)" in title for title in titles)


def test_a_run_without_results_points_to_its_jobs() -> None:
    text = text_of(_sent(story.run_report(1, devices=[])))
    assert "No results." in text
    assert "The jobs above say why" in text


def test_a_device_without_a_completed_trial_still_has_a_page() -> None:
    bare = {
        arm: story.arm_report(arm, 0).model_copy(update={"metrics": {}, "agent_ttft_ms": {}, "budget": []})
        for arm in ("serial", "paged")
    }
    nothing: dict[str, Any] = {
        "pairs": [],
        "verdicts": [],
        "reading": [],
        "sample_texts": [],
        "conditions": None,
    }
    text = _text(arms=bare, wall_reduction_percent=None, speedup=None, **nothing)
    assert "No pair has a completed trial" in text
    assert "No completed trial has a first token" in text
    assert "The runtime recorded none." in text


def test_a_metric_of_a_newer_controller_is_shown_by_its_name() -> None:
    arm = story.arm_report("paged", 1)
    newer = arm.model_copy(update={"metrics": {**arm.metrics, "joules_per_token": story.spread(0.4)}})
    assert "joules_per_token" in _text(arms={"paged": newer})


def test_baseline_and_candidate_come_first() -> None:
    arms = {name: story.arm_report(name, 0) for name in ("serial_cached", "paged", "serial")}
    found = story.device_report(1, arms=arms)
    assert arm_order(found, "serial", "paged") == ["serial", "paged", "serial_cached"]
    assert arm_order(found, "gone", "paged") == ["paged", "serial_cached", "serial"]
