"""The page that compares two runs."""

from typing import Any

from tests.fakes import dashboard_story as story
from tests.fakes.dashboard_rest import FakeFarm
from tests.fakes.dashboard_viewer import DashboardViewer, components, links, text_of

RUN, BASELINE = story.identifier("run", 1), story.identifier("run", 2)
CHOSEN = f"/dashboard/compare?run={RUN}&baseline={BASELINE}&arm=paged"
OUTPUT = "compare-body.children"
REFUSED = "these runs are not of the same thing (device_model: A and B)"


def _seen(viewer: DashboardViewer, address: str = CHOSEN) -> dict[str, Any]:
    return viewer.fill(address, OUTPUT)


def _body(viewer: DashboardViewer, address: str = CHOSEN) -> Any:
    return _seen(viewer, address)["compare-body"]["children"]


def _graphs(body: Any) -> list[dict[str, Any]]:
    return [one for one in components(body) if one["type"] == "Graph"]


def test_each_metric_shows_both_runs_with_spreads_and_the_change(viewer: DashboardViewer) -> None:
    body = _body(viewer)
    text = text_of(body)
    assert "Wall time (s) 6.90 6.69 to 7.18, n 6 6.28 6.09 to 6.53, n 6 −9.0 % ranges apart" in text
    rate = "26.1 25.3 to 27.1, n 6 23.8 23.0 to 24.7, n 6 −9.0 % ranges apart"
    assert f"Output tokens per second (tokens/s) {rate}" in text
    assert "not a verdict" in text
    assert len(_graphs(body)) == 1


def test_a_metric_whose_baseline_is_zero_has_no_change(viewer: DashboardViewer) -> None:
    assert "Preemptions 0 the same in all 6 0 the same in all 6 –" in text_of(_body(viewer))


def test_the_form_offers_completed_runs_and_keeps_the_choice(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.runs = [*farm.runs, story.live_run(3)]
    seen = _seen(viewer)
    assert [option["value"] for option in seen["compare-run"]["options"]] == [RUN, BASELINE]
    assert [option["value"] for option in seen["compare-arm"]["options"]] == ["paged", "serial"]
    dropdowns = {
        one["props"]["id"]: one["props"]["value"]
        for one in components(viewer.layout_of(CHOSEN))
        if one["type"] == "Dropdown"
    }
    assert dropdowns["compare-run"] == RUN
    assert dropdowns["compare-arm"] == "paged"


def test_a_chosen_run_that_is_not_on_the_first_page_stays_chosen(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    farm.runs = []
    options = _seen(viewer)["compare-baseline"]["options"]
    assert [option["value"] for option in options] == [RUN, BASELINE]


def test_the_button_writes_the_form_into_the_address(viewer: DashboardViewer) -> None:
    callback = next(found for found in viewer.callbacks() if found["output"] == "compare-address.search")
    answer = viewer.again(
        callback,
        viewer.layout_of("/dashboard/compare"),
        compare_go=1,
        compare_run=RUN,
        compare_baseline=BASELINE,
    )
    assert answer["compare-address"]["search"] == f"?run={RUN}&baseline={BASELINE}"


def test_a_refused_comparison_says_what_differs_and_can_be_forced(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    farm.not_comparable = REFUSED
    body = _body(viewer)
    assert "device_model: A and B" in text_of(body)
    (anyway,) = links(body)
    assert anyway == f"{CHOSEN}&force=true"
    farm.comparison = story.comparison(differs=["device_model: A and B"])
    forced = text_of(_body(viewer, anyway))
    assert "Conditions that are not the same device_model: A and B" in forced
    assert "Wall time (s)" in forced


def test_two_device_models_never_share_a_figure(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.reports[BASELINE] = story.run_report(2, devices=[story.device_report(2, device_model="iPhone14,5")])
    body = _body(viewer, f"{CHOSEN}&force=true")
    assert _graphs(body) == []
    assert "different device models, and a figure never mixes them" in text_of(body)
    assert "Wall time (s)" in text_of(body)


def test_several_device_models_can_be_chosen_among(farm: FakeFarm, viewer: DashboardViewer) -> None:
    both = [story.device_report(1, device_model=model) for model in ("iPhone14,5", "iPhone15,2")]
    farm.reports = {RUN: story.run_report(1, devices=both), BASELINE: story.run_report(2, devices=both)}
    seen = _seen(viewer, f"{CHOSEN}&device_model=iPhone15%2C2")
    assert seen["compare-device_model-field"]["hidden"] is False
    assert seen["compare-variant-field"]["hidden"] is True
    (graph,) = _graphs(seen["compare-body"]["children"])
    assert "iPhone15,2" in graph["props"]["figure"]["layout"]["title"]["text"]
    assert any("device_model=iPhone15%2C2" in call for call in farm.calls)


def test_a_virtual_device_is_marked(farm: FakeFarm, viewer: DashboardViewer) -> None:
    emulated = [story.device_report(1, virtual=True)]
    farm.reports = {
        RUN: story.run_report(1, devices=emulated),
        BASELINE: story.run_report(2, devices=emulated),
    }
    body = _body(viewer)
    assert "(virtual device)" in text_of(body)
    assert "badge-virtual" in str(body)


def test_nothing_chosen_asks_for_a_choice(viewer: DashboardViewer) -> None:
    assert "Choose two runs." in text_of(_body(viewer, "/dashboard/compare"))


def test_with_fewer_than_two_completed_runs_there_is_nothing_to_compare(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    farm.runs = [story.done_run(1)]
    assert "There is nothing to compare yet." in text_of(_body(viewer, "/dashboard/compare"))


def test_runs_without_a_common_metric_say_so(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.comparison = story.comparison(metrics={}, change_percent={})
    assert "no metric in common" in text_of(_body(viewer))


def test_reports_that_cannot_be_read_leave_the_table(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.reports = {}
    body = _body(viewer)
    assert _graphs(body) == []
    assert "Wall time (s)" in text_of(body)


def test_parameters_that_are_not_known_are_passed_over(viewer: DashboardViewer) -> None:
    assert "Wall time (s)" in text_of(_body(viewer, f"{CHOSEN}&colour=red&is_complete=1"))


def test_a_choice_that_the_controller_refuses_leaves_the_form_filled(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    farm.comparison = None
    seen = _seen(viewer)
    assert "There is no comparison of run" in text_of(seen["compare-body"]["children"])
