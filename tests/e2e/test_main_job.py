"""The main job, end to end, with real processes: from REST to a figure, and through every kill."""

from pathlib import Path

import httpx
import pytest

from contract import routes
from contract.artifacts import ArtifactKind
from contract.events import Stream
from contract.metrics import METRICS
from contract.states import AttemptState, JobOutcome, RunOutcome
from dashboard.figures.live import output_rate_figure
from dashboard.figures.theme import subject_of
from tests.e2e.live_farm import TRUNCATED, LiveFarm, live_farm, wait_for


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> LiveFarm:
    with live_farm(tmp_path_factory.mktemp("farm")) as up:
        yield up


def only_attempt(farm: LiveFarm, run_id: str) -> str:
    (job,) = farm.run(run_id).jobs
    (attempt,) = job.attempts
    return attempt.attempt_id


def assert_nothing_lost(farm: LiveFarm, run_id: str) -> None:
    audit = farm.audit(run_id)
    assert (audit.lost, audit.duplicated) == (0, 0)
    assert audit.written > 100
    with farm.client() as client:
        for stream in Stream:
            seqs = [event["seq"] for event in client.events(only_attempt(farm, run_id), stream)]
            assert seqs == list(range(1, len(seqs) + 1)), stream


def test_a_submitted_run_becomes_a_report_a_verdict_and_a_figure(farm: LiveFarm) -> None:
    run_id = farm.submit()
    run = farm.completed(run_id)
    assert run.jobs[0].outcome is JobOutcome.SUCCEEDED
    assert_nothing_lost(farm, run_id)
    with farm.client() as client:
        report, live = client.report(run_id), client.live(run_id)
    (device,) = report.devices
    assert {arm.trials for arm in device.arms.values()} == {5}
    assert {arm.trials_failed for arm in device.arms.values()} == {0}
    for arm in device.arms.values():
        assert {"wall_s", "ttft_ms", "itl_ms", "peak_footprint_mb", "kv_hit_rate_tokens"} <= set(arm.metrics)
        assert set(arm.metrics) <= set(METRICS)
    assert device.arms["serial"].metrics["kv_hit_rate_tokens"].max == 0
    assert device.arms["paged"].metrics["kv_hit_rate_tokens"].median > 0.5
    assert device.arms["paged"].budget
    assert device.reading
    assert report.gate.metrics[0].pairs == 5
    figure = output_rate_figure(live, subject_of(device))
    assert max(value for trace in figure.data for value in trace.y) > 0


def test_the_dashboard_shows_the_run_to_who_has_signed_in_and_to_nobody_else(farm: LiveFarm) -> None:
    run_id = farm.submit(repetitions=1)
    farm.completed(run_id)
    token = (farm.home / "admin-token").read_text().strip()
    with httpx.Client(base_url=farm.url, timeout=20, headers={"Accept": "text/html"}) as browser:
        assert browser.get(f"/dashboard/runs/{run_id}").status_code in (302, 303, 307)
        assert browser.post("/login", data={"token": token}).status_code in (200, 302, 303)
        page = browser.get(f"/dashboard/runs/{run_id}")
        assert page.status_code == 200
        assert "dash" in page.text.lower()
        assert token not in page.text


def test_an_agent_killed_in_the_middle_comes_back_and_no_event_is_lost_or_doubled(tmp_path: Path) -> None:
    with live_farm(tmp_path) as farm:
        run_id = farm.submit(repetitions=8)
        farm.wait_until_under_way(run_id)
        before = {process.pid for process in farm.runtimes()}
        farm.kill("agent")
        assert {process.pid for process in farm.runtimes()} == before, "the runtime outlives its agent"
        farm.start_agent()
        run = farm.completed(run_id)
        assert [attempt.state for attempt in run.jobs[0].attempts] == [AttemptState.SUCCEEDED]
        assert_nothing_lost(farm, run_id)
        with farm.client() as client:
            agent_events = list(client.events(only_attempt(farm, run_id), Stream.DEVICE_AGENT))
        assert any(event["type"] == "device_agent_restarted" for event in agent_events)


def test_a_controller_killed_in_the_middle_comes_back_and_no_event_is_lost_or_doubled(tmp_path: Path) -> None:
    with live_farm(tmp_path) as farm:
        run_id = farm.submit(repetitions=8)
        farm.wait_until_under_way(run_id)
        farm.kill("controller")
        farm.start_controller()
        run = farm.completed(run_id)
        assert [attempt.state for attempt in run.jobs[0].attempts] == [AttemptState.SUCCEEDED]
        assert_nothing_lost(farm, run_id)


def test_a_killed_runtime_is_a_failure_of_the_runtime_and_what_it_wrote_is_kept(farm: LiveFarm) -> None:
    run_id = farm.submit(repetitions=8, max_attempts=1)
    farm.wait_until_under_way(run_id)
    for process in farm.runtimes():
        process.kill()
    run = farm.completed(run_id)
    (attempt,) = run.jobs[0].attempts
    assert attempt.reason == "killed_outside"
    assert_nothing_lost(farm, run_id)


def test_a_cancelled_run_stops_its_runtime_and_keeps_what_was_measured(farm: LiveFarm) -> None:
    run_id = farm.submit(repetitions=50)
    farm.wait_until_under_way(run_id)
    with farm.client() as client:
        client.cancel(run_id)
    run = farm.completed(run_id)
    assert run.outcome is RunOutcome.CANCELLED
    wait_for(lambda: not farm.runtimes(), "the runtime's end")
    assert_nothing_lost(farm, run_id)


def test_a_truncated_model_fails_the_attempt_with_what_to_do(farm: LiveFarm) -> None:
    run_id = farm.submit(model=TRUNCATED, repetitions=1)
    run = farm.completed(run_id)
    assert run.jobs[0].outcome is JobOutcome.FAILED
    (attempt,) = run.jobs[0].attempts
    assert attempt.reason == "model_corrupt"
    with farm.client() as client:
        (device,) = client.report(run_id).devices
    assert any("fetch the model file again" in failure for failure in device.failures)
    with farm.client() as client:
        files = client.call(routes.LIST_ARTIFACTS, run_id=run_id).artifacts
        # What the advice of a runtime's failure names is there, and can be read.
        (log,) = [each for each in files if each.kind is ArtifactKind.RUNTIME_LOG]
        content = client.call(routes.GET_ARTIFACT, attempt_id=log.attempt_id, name=log.name)
    assert len(content) == log.size_bytes
