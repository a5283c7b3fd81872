"""Runs over HTTP: submitted once, seen, cancelled, reported, judged, compared."""

from typing import Any

import pytest

from contract.problems import Problem
from contract.rest import Comparison, GateView, LiveView, RunPage, RunReport, RunRequest, RunView
from contract.states import GateExit, JobOutcome, JobState, RunOutcome, RunState
from tests.fakes.farm import Farm
from tests.fakes.session import Lab, run_request

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lab(farm: Farm) -> Lab:
    return await Lab.of(farm)


async def _post(farm: Farm, body: dict[str, Any], key: str | None = None) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    async with farm.client("submitter", headers=headers) as client:
        return await client.post("/v1/runs", json=body)


async def _problem(farm: Farm, path: str, **params: Any) -> Problem:
    async with farm.client("viewer") as client:
        return Problem.model_validate((await client.get(path, params=params)).json())


async def test_a_submitted_run_is_there_with_its_jobs(lab: Lab) -> None:
    run = await lab.submit(labels={"pr": "7"})
    assert (run.state, run.outcome) == (RunState.ACTIVE, None)
    assert run.labels == {"pr": "7"}
    assert [job.state for job in run.jobs] == [JobState.QUEUED]
    assert run.report_url == f"http://127.0.0.1:8000/dashboard/runs/{run.run_id}"
    assert RunView.model_validate(await lab.get(f"/v1/runs/{run.run_id}")) == run


async def test_the_request_of_a_run_can_be_sent_again_as_it_is(lab: Lab) -> None:
    run = await lab.submit(labels={"pr": "7"}, repetitions=9)
    request = RunRequest.model_validate(await lab.get(f"/v1/runs/{run.run_id}/request"))
    assert (request.labels, request.repetitions) == ({"pr": "7"}, 9)
    again = RunView.model_validate((await _post(lab.farm, request.model_dump(mode="json"))).json())
    assert again.run_id != run.run_id
    assert again.workload_digest == run.workload_digest


async def test_a_sweep_makes_a_job_for_each_variant_and_selector(lab: Lab) -> None:
    run = await lab.submit(
        workload={"name": "sweep-agents"}, selectors=[{"kind": "host"}, {"device_id": "host-1"}]
    )
    variants = [job.variant for job in run.jobs]
    assert len(variants) == 2 * len(set(variants)) > 2


async def test_the_same_key_gives_the_same_run_and_no_second_one(lab: Lab) -> None:
    first = await _post(lab.farm, run_request(), key="pr-7")
    again = await _post(lab.farm, run_request(), key="pr-7")
    assert first.json() == again.json()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == f"/v1/runs/{again.json()['run_id']}"
    assert len(RunPage.model_validate(await lab.get("/v1/runs")).runs) == 1


async def test_a_key_used_for_another_body_is_refused(lab: Lab) -> None:
    await _post(lab.farm, run_request(), key="pr-7")
    response = await _post(lab.farm, run_request(repetitions=7), key="pr-7")
    assert (response.status_code, response.json()["code"]) == (422, "idempotency-key-reused")


async def test_a_key_belongs_to_its_token(lab: Lab) -> None:
    await _post(lab.farm, run_request(), key="pr-7")
    async with lab.farm.client("admin", headers={"Idempotency-Key": "pr-7"}) as client:
        response = await client.post("/v1/runs", json=run_request(repetitions=7))
    assert response.status_code == 201


async def test_a_refused_request_does_not_use_up_its_key(farm: Farm) -> None:
    assert (await _post(farm, run_request(), key="pr-7")).status_code == 422
    lab = await Lab.of(farm)
    assert (await _post(lab.farm, run_request(), key="pr-7")).status_code == 201


async def test_without_a_key_each_request_is_a_run_of_its_own(lab: Lab) -> None:
    ids = {(await lab.submit()).run_id for _ in range(2)}
    assert len(ids) == 2


async def test_pages_are_newest_first_and_complete(lab: Lab) -> None:
    submitted = [(await lab.submit()).run_id for _ in range(5)]
    seen: list[str] = []
    token: str | None = None
    for _ in range(3):
        params = {"limit": 2} | ({"page_token": token} if token else {})
        page = RunPage.model_validate(await lab.get("/v1/runs", **params))
        seen += [run.run_id for run in page.runs]
        token = page.next_page_token
    assert token is None
    assert sorted(seen) == sorted(submitted)
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize("path", ["", "/request", "/report", "/gate", "/live", "/comparison"])
async def test_a_run_that_is_not_there_is_said_so(farm: Farm, path: str) -> None:
    missing = "run_01J00000000000000000000000"
    problem = await _problem(farm, f"/v1/runs/{missing}{path}", **({"baseline": missing} if path else {}))
    assert (problem.status, problem.code) == (404, "run-not-found")


async def test_a_carried_out_run_is_judged_and_reported(lab: Lab) -> None:
    run = await lab.submit()
    await lab.carry_out(await lab.claim())
    gate = GateView.model_validate(await lab.get(f"/v1/runs/{run.run_id}/gate"))
    assert (gate.verdict, gate.exit_code) == ("pass", GateExit.PASS)
    report = RunReport.model_validate(await lab.get(f"/v1/runs/{run.run_id}/report"))
    assert (report.state, report.outcome, report.gate) == (RunState.COMPLETED, RunOutcome.PASSED, gate)
    (device,) = report.devices
    assert device.wall_reduction_percent == pytest.approx(60.0, rel=0.01)
    assert device.speedup == pytest.approx(2.5, rel=0.01)
    assert device.arms["paged"].metrics["wall_s"].n == 6
    assert [verdict.verdict for verdict in device.verdicts] == ["improved"]
    assert device.sample_texts
    done = RunView.model_validate(await lab.get(f"/v1/runs/{run.run_id}"))
    assert [job.outcome for job in done.jobs] == [JobOutcome.SUCCEEDED]


async def test_a_slower_candidate_is_a_regression(lab: Lab) -> None:
    run = await lab.submit(baseline="paged", candidate="serial")
    await lab.carry_out(await lab.claim())
    gate = GateView.model_validate(await lab.get(f"/v1/runs/{run.run_id}/gate"))
    assert (gate.verdict, gate.exit_code) == ("regression", GateExit.REGRESSION)
    done = RunView.model_validate(await lab.get(f"/v1/runs/{run.run_id}"))
    assert done.outcome is RunOutcome.REGRESSED


async def test_before_the_end_there_is_a_report_but_no_gate(lab: Lab) -> None:
    run = await lab.submit()
    problem = await _problem(lab.farm, f"/v1/runs/{run.run_id}/gate")
    assert (problem.status, problem.code, problem.retryable) == (409, "result-not-ready", True)
    report = RunReport.model_validate(await lab.get(f"/v1/runs/{run.run_id}/report"))
    assert (report.devices, report.gate.verdict) == ([], "inconclusive")


async def test_a_waiting_run_is_cancelled_at_once_and_again_is_no_error(lab: Lab) -> None:
    run = await lab.submit()
    for _ in range(2):
        async with lab.farm.client("submitter") as client:
            response = await client.post(f"/v1/runs/{run.run_id}:cancel")
        cancelled = RunView.model_validate(response.json())
        assert (cancelled.state, cancelled.outcome) == (RunState.COMPLETED, RunOutcome.CANCELLED)
    gate = GateView.model_validate(await lab.get(f"/v1/runs/{run.run_id}/gate"))
    assert gate.exit_code is GateExit.CANCELLED


async def test_a_running_run_is_cancelled_through_its_agent(lab: Lab) -> None:
    run = await lab.submit()
    lease = await lab.claim()
    async with lab.farm.client("submitter") as client:
        await client.post(f"/v1/runs/{run.run_id}:cancel")
    assert (await lab.agent.renew(lease, "running"))["directive"] == "cancel"
    await lab.agent.finish(lease, {}, outcome="cancelled")
    done = RunView.model_validate(await lab.get(f"/v1/runs/{run.run_id}"))
    assert (done.state, done.outcome) == (RunState.COMPLETED, RunOutcome.CANCELLED)


async def test_the_live_view_follows_the_newest_attempt(lab: Lab) -> None:
    run = await lab.submit()
    path = f"/v1/runs/{run.run_id}/live"
    assert LiveView.model_validate(await lab.get(path)).attempt_id is None
    lease = await lab.claim()
    await lab.carry_out(lease)
    live = LiveView.model_validate(await lab.get(path))
    assert (live.attempt_id, live.trials_done, live.trials_total) == (lease.attempt_id, 14, 14)
    assert {"output_tokens_per_s", "footprint_mb", "agent_ttft_ms"} <= {line.name for line in live.series}
    assert set(live.agent_ttft_ms) == {"serial", "paged"}


async def test_two_runs_of_the_same_thing_are_compared(lab: Lab) -> None:
    runs = []
    for slower in (1.0, 1.5):
        runs.append((await lab.submit()).run_id)
        await lab.carry_out(await lab.claim(), lambda planned, s=slower: {"finished_ms": 1000.0 * s})
    found = Comparison.model_validate(await lab.get(f"/v1/runs/{runs[1]}/comparison", baseline=runs[0]))
    assert (found.run_id, found.baseline_run_id, found.arm) == (runs[1], runs[0], "paged")
    assert found.change_percent["wall_s"] == pytest.approx(50.0)
    assert "no verdict" in found.note


async def test_runs_of_other_workloads_are_compared_only_when_it_is_asked_for(lab: Lab) -> None:
    runs = []
    for workload in ("single", "chain"):
        runs.append((await lab.submit(workload={"name": workload})).run_id)
        await lab.carry_out(await lab.claim())
    path = f"/v1/runs/{runs[1]}/comparison"
    problem = await _problem(lab.farm, path, baseline=runs[0])
    assert (problem.status, problem.code) == (409, "not-comparable")
    assert "workload_digest" in problem.detail
    forced = Comparison.model_validate(await lab.get(path, baseline=runs[0], force="true"))
    assert [difference.split(":")[0] for difference in forced.differs] == [
        "workload_digest",
        "workload's name",
    ]
    assert "workload's name: single and chain" in problem.detail


async def test_a_comparison_of_an_unknown_arm_names_the_arms_there_are(lab: Lab) -> None:
    run = (await lab.submit()).run_id
    await lab.carry_out(await lab.claim())
    problem = await _problem(lab.farm, f"/v1/runs/{run}/comparison", baseline=run, arm="other")
    assert problem.status == 422
    assert "serial, paged" in problem.detail


async def test_an_unknown_query_parameter_is_refused(lab: Lab) -> None:
    run = (await lab.submit()).run_id
    problem = await _problem(lab.farm, f"/v1/runs/{run}/comparison", baseline=run, forse="true")
    assert (problem.status, problem.code) == (422, "validation")
    assert "forse" in problem.detail
