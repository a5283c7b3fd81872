"""The page of all runs."""

import asyncio

from contract.states import RunOutcome, TargetKind
from dashboard.client import FarmClient
from dashboard.pages.runs import ResultShelf, result_of
from tests.fakes import dashboard_story as story
from tests.fakes.dashboard_rest import SESSION, FakeFarm
from tests.fakes.dashboard_viewer import DashboardViewer, links, text_of

BODY = "runs-body.children"


def _body(viewer: DashboardViewer, address: str = "/dashboard/runs") -> object:
    return viewer.fill(address, BODY)["runs-body"]["children"]


def test_a_completed_run_shows_outcome_workload_model_reduction_and_verdict(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    farm.runs = [story.done_run(1)]
    body = _body(viewer)
    text = text_of(body)
    for told in (
        "passed",
        "shared-prefix",
        "paged against serial",
        "smollm2-135m-instruct",
        "62.5 % less time, 2.67 times as fast",
        "pass (exit code 0)",
    ):
        assert told in text
    run_id = story.identifier("run", 1)
    assert links(body) == [f"/dashboard/runs/{run_id}", f"/dashboard/compare?run={run_id}&arm=paged"]


def test_a_slower_candidate_is_more_time_and_no_negative_reduction(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    run_id = story.identifier("run", 1)
    slower = story.device_report(1, wall_reduction_percent=-12.0, speedup=0.89)
    farm.reports[run_id] = story.run_report(1, devices=[slower])
    assert "12.0 % more time, 0.89 times as fast" in text_of(_body(viewer))


def test_a_live_run_has_no_result_and_nobody_asks_for_one(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.runs = [story.live_run(5)]
    text = text_of(_body(viewer))
    assert "1 run, 1 live" in text
    assert "times as fast" not in text
    assert farm.calls == ["/v1/runs?limit=50"]


def test_a_report_is_read_once_and_not_at_every_look(farm: FakeFarm, viewer: DashboardViewer) -> None:
    _body(viewer)
    _body(viewer)
    assert sorted(call for call in farm.calls if call.endswith("/report")) == [
        f"/v1/runs/{story.identifier('run', number)}/report" for number in (1, 2)
    ]


def test_a_report_that_cannot_be_read_is_said_to_be_missing(farm: FakeFarm, viewer: DashboardViewer) -> None:
    del farm.reports[story.identifier("run", 2)]
    assert "not available" in text_of(_body(viewer))


def test_older_runs_are_a_page_away(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.next_page_token = story.identifier("run", 1)
    older = links(_body(viewer))[-1]
    assert older == f"/dashboard/runs?page_token={farm.next_page_token}"
    _body(viewer, older)
    assert f"/v1/runs?limit=50&page_token={farm.next_page_token}" in farm.calls


def test_without_a_run_the_page_says_how_to_submit_one(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.runs = []
    text = text_of(_body(viewer))
    assert "No run yet." in text
    assert "dynofarm submit shared-prefix" in text


def test_a_virtual_device_is_marked_beside_its_model(farm: FakeFarm, viewer: DashboardViewer) -> None:
    emulated = story.device_report(1, device_model="iPhone14,5", kind=TargetKind.VIRTUAL, virtual=True)
    farm.reports[story.identifier("run", 1)] = story.run_report(1, devices=[emulated])
    assert "iPhone14,5 virtual" in text_of(_body(viewer))


def test_results_of_several_devices_stay_apart() -> None:
    models = ("iPhone14,5", "iPhone15,2")
    report = story.run_report(
        1, devices=[story.device_report(1, device_model=model) for model in models], outcome=RunOutcome.PASSED
    )
    assert [device.device_model for device in result_of(report).devices] == list(models)


def test_the_shelf_of_results_is_bounded_and_keeps_the_newest(farm: FakeFarm) -> None:
    async def looks() -> None:
        shelf = ResultShelf(capacity=1)
        async with FarmClient(farm.url).reading_as(SESSION) as reader:
            for number in (1, 2, 2, 1):
                assert await shelf.results(reader, [story.done_run(number)])

    asyncio.run(looks())
    asked = [call.split("/")[3][-1] for call in farm.calls]
    assert asked == ["1", "2", "1"]
