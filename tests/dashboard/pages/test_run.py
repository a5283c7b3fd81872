"""The page of one run, look by look."""

from datetime import UTC, datetime

from contract.artifacts import ArtifactKind, ArtifactView
from contract.failures import FAILURES, FailureReason
from contract.rest import RunRequest, WorkloadRequest
from contract.states import AttemptState, JobOutcome, JobState, RunOutcome, RunState
from dashboard.pages.run_snapshot import FOR_EVER, NEVER
from tests.fakes import dashboard_story as story
from tests.fakes.dashboard_rest import NEW_RUN, FakeFarm
from tests.fakes.dashboard_viewer import DashboardViewer, components, text_of

RUN = story.identifier("run", 1)
ADDRESS = f"/dashboard/runs/{RUN}"
OUTPUT = "run-head.children"
FIGURES = ("run-rate", "run-footprint", "run-blocks", "run-ttft")
_DRAWN = {*FIGURES, "run-head", "run-jobs", "run-progress", "run-texts", "run-report"}


def _look(viewer: DashboardViewer, address: str = ADDRESS) -> dict[str, dict[str, object]]:
    return viewer.fill(address, OUTPUT)


def _again(viewer: DashboardViewer, before: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """The next look of the same page, which remembers the one before."""
    callback = next(found for found in viewer.callbacks() if OUTPUT in found["output"])
    return viewer.again(callback, viewer.layout_of(ADDRESS), run_memory=before["run-memory"]["data"])


def _go_live(farm: FakeFarm) -> None:
    farm.runs = [story.live_run(1)]


def test_a_live_run_shows_its_figures_on_its_device(farm: FakeFarm, viewer: DashboardViewer) -> None:
    _go_live(farm)
    seen = _look(viewer)
    assert seen["run-live"]["hidden"] is False
    for figure in FIGURES:
        assert "bench-host" in str(seen[figure]["figure"])
    assert "5 of 14 trials done, trial 6 is under way" in text_of(seen["run-progress"]["children"])
    assert "The depot opens at seven" in text_of(seen["run-texts"]["children"])
    assert seen["run-report"]["children"] == []


def test_a_live_run_is_looked_at_again_and_a_completed_one_never(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    assert _look(viewer)["run-tick"]["max_intervals"] == NEVER
    _go_live(farm)
    assert _look(viewer)["run-tick"]["max_intervals"] == FOR_EVER


def test_a_look_waits_for_the_answer_of_the_last(viewer: DashboardViewer) -> None:
    callback = next(found for found in viewer.callbacks() if OUTPUT in found["output"])
    assert callback["running"]["running"] == {"run-tick.disabled": True}
    assert callback["running"]["runningOff"] == {"run-tick.disabled": False}


def test_the_next_look_asks_for_no_more_than_run_and_live_view(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    _go_live(farm)
    first = _look(viewer)
    assert sorted(farm.calls) == ["/v1/devices/bench-host", f"/v1/runs/{RUN}", f"/v1/runs/{RUN}/live"]
    farm.calls.clear()
    _again(viewer, first)
    assert sorted(farm.calls) == [f"/v1/runs/{RUN}", f"/v1/runs/{RUN}/live"]


def test_what_did_not_change_is_not_drawn_again(farm: FakeFarm, viewer: DashboardViewer) -> None:
    _go_live(farm)
    first = _look(viewer)
    second = _again(viewer, first)
    assert not _DRAWN & second.keys()
    later = story.live_view(1)
    more = [
        series.model_copy(update={"points": [*series.points, story.points([9.0])[0]]})
        if series.name == "output_tokens_per_s"
        else series
        for series in later.series
    ]
    farm.lives[RUN] = later.model_copy(update={"series": more})
    assert _DRAWN & _again(viewer, second).keys() == {"run-rate"}


def test_a_virtual_device_is_marked_in_the_title_of_every_live_figure(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    _go_live(farm)
    farm.devices = [story.device(virtual=True)]
    seen = _look(viewer)
    for figure in FIGURES:
        assert "(virtual\u00a0device)" in seen[figure]["figure"]["layout"]["title"]["text"]


def test_a_run_that_waits_says_for_what(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.runs = [story.queued_run(1)]
    farm.lives[RUN] = story.nothing_live(1)
    seen = _look(viewer)
    assert seen["run-live"]["hidden"] is True
    assert "No device has begun yet. bench-host is leased." in text_of(seen["run-report"]["children"])
    assert "waits: bench-host is leased" in text_of(seen["run-jobs"]["children"])


def test_the_report_comes_when_a_job_is_done_and_is_read_once(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    done = story.job(1, state=JobState.DONE, outcome=JobOutcome.SUCCEEDED)
    farm.runs = [story.live_run(1, jobs=[done, story.job(2)])]
    first = _look(viewer)
    assert "Gate: pass" in text_of(first["run-report"]["children"])
    farm.calls.clear()
    assert "run-report" not in _again(viewer, first)
    assert f"/v1/runs/{RUN}/report" not in farm.calls


def test_a_completed_run_shows_its_report_and_hides_the_live_figures(viewer: DashboardViewer) -> None:
    seen = _look(viewer)
    assert seen["run-live"]["hidden"] is True
    assert "run-rate" not in seen
    assert "62.5 % less time" in text_of(seen["run-report"]["children"])


def test_a_failed_job_says_what_went_wrong_and_what_to_try(farm: FakeFarm, viewer: DashboardViewer) -> None:
    ended = story.attempt(
        1, state=AttemptState.FAILED, reason=FailureReason.JETSAM, detail="killed at 2,098 MB"
    )
    failed = story.job(1, state=JobState.DONE, outcome=JobOutcome.FAILED, attempts=[ended])
    farm.runs = [story.live_run(1, state=RunState.COMPLETED, outcome=RunOutcome.FAILED, jobs=[failed])]
    text = text_of(_look(viewer)["run-jobs"]["children"])
    assert f"jetsam: killed at 2,098 MB. Try: {FAILURES[FailureReason.JETSAM].advice}." in text


def test_an_unknown_run_says_so_and_is_not_asked_for_again(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.runs = []
    seen = _look(viewer)
    assert f"There is no run {RUN}." in text_of(seen["run-head"]["children"])
    assert seen["run-tick"]["max_intervals"] == NEVER


def test_a_text_that_is_no_id_never_reaches_the_controller(farm: FakeFarm, viewer: DashboardViewer) -> None:
    seen = _look(viewer, "/dashboard/runs/..%2Fdevices")
    assert "There is no run" in text_of(seen["run-head"]["children"])
    assert farm.calls == []


def test_a_controller_that_fails_is_asked_again(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.broken_status = 503
    seen = _look(viewer)
    assert seen["run-tick"]["max_intervals"] == FOR_EVER
    farm.broken_status = None
    assert "smollm2-135m-instruct" in text_of(_again(viewer, seen)["run-head"]["children"])


def test_every_figure_has_its_place_before_the_first_value(viewer: DashboardViewer) -> None:
    ids = [one["props"].get("id") for one in components(viewer.layout_of(ADDRESS))]
    assert [found for found in ids if found in FIGURES] == list(FIGURES)


def test_the_files_of_a_run_are_links_that_save_and_never_open(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    attempt_id = "att_01J00000000000000000000000"
    farm.artifacts = [
        ArtifactView(
            attempt_id=attempt_id,
            name="crash.ips",
            kind=ArtifactKind.CRASH_REPORT,
            size_bytes=2098,
            sha256="0" * 64,
            created_at=datetime(2026, 12, 1, tzinfo=UTC),
        )
    ]
    report = _look(viewer)["run-report"]["children"]
    assert "crash.ips" in text_of(report)
    assert "crash report" in text_of(report)
    shown = str(report)
    assert f"/v1/attempts/{attempt_id}/artifacts/crash.ips" in shown
    assert f"'download': '{attempt_id}-crash.ips'" in shown


def test_a_run_without_files_shows_no_list_of_them(viewer: DashboardViewer) -> None:
    assert "Files" not in text_of(_look(viewer)["run-report"]["children"])


def test_only_a_run_that_goes_on_can_be_cancelled(farm: FakeFarm, viewer: DashboardViewer) -> None:
    assert _look(viewer)["run-cancel-field"]["hidden"] is True
    _go_live(farm)
    assert _look(viewer)["run-cancel-field"]["hidden"] is False
    told = text_of(viewer.click(ADDRESS, "run-cancel")["run-acted"]["children"])
    assert "The run is cancelled." in told
    assert farm.changes == [f"/v1/runs/{RUN}:cancel"]


def test_a_run_is_submitted_again_and_the_page_goes_to_the_new_one(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    farm.requests[RUN] = RunRequest(workload=WorkloadRequest(name="chain"), model="tiny")
    answer = viewer.click(ADDRESS, "run-again")
    assert answer["run-address"]["href"] == f"/dashboard/runs/{NEW_RUN}"
    assert farm.changes == ["/v1/runs"]


def test_what_the_controller_refuses_to_do_is_said_under_the_buttons(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    farm.broken_status = 403
    for button in ("run-cancel", "run-again"):
        answer = viewer.click(ADDRESS, button)
        assert "Your token does not allow this." in text_of(next(iter(answer.values()))["children"])
    assert farm.changes == []


def test_a_run_page_has_the_command_for_its_trace(viewer: DashboardViewer) -> None:
    copied = [one["props"].get("content") for one in components(viewer.layout_of(ADDRESS))]
    assert f"dynofarm trace {RUN}" in copied
