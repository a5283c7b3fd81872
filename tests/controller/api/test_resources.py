"""Jobs, attempts, devices, catalogue, enrolment and the service about itself, over HTTP."""

import hashlib
from typing import Any

import pytest
from sqlalchemy import select

from contract.administration import NewToken
from contract.artifacts import ArtifactList
from contract.health import Health
from contract.metrics import METRICS
from contract.problems import Problem
from contract.rest import (
    AttemptView,
    DevicePage,
    DeviceView,
    EventsPage,
    JobExplanation,
    JobView,
    MetricList,
    WorkloadList,
)
from contract.states import AttemptState, DeviceState, JobState
from controller.db.models import AuditRow
from tests.fakes.farm import Farm, host_report
from tests.fakes.session import Lab

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lab(farm: Farm) -> Lab:
    return await Lab.of(farm)


async def _act(farm: Farm, path: str, body: Any) -> Any:
    async with farm.client("admin") as client:
        return await client.post(path, json=body)


async def test_a_job_says_why_it_waits_device_by_device(lab: Lab) -> None:
    await lab.agent.hello(host_report(ready=False, reasons=["hot"]), host_report("host-2", models=["other"]))
    run = await lab.submit()
    explained = JobExplanation.model_validate(await lab.get(f"/v1/jobs/{run.jobs[0].job_id}/explain"))
    assert explained.state is JobState.QUEUED
    first, second = explained.devices
    assert (first.device_id, first.misses) == ("host-1", [])
    assert "cooling" in first.waits[0]
    assert (second.device_id, second.waits) == ("host-2", [])
    assert "no model 'tiny'" in second.misses[0]
    job = JobView.model_validate(await lab.get(f"/v1/jobs/{run.jobs[0].job_id}"))
    assert job.waiting_reason == explained.waiting_reason != ""


async def test_a_job_that_runs_waits_for_nothing(lab: Lab) -> None:
    run = await lab.submit()
    await lab.claim()
    explained = JobExplanation.model_validate(await lab.get(f"/v1/jobs/{run.jobs[0].job_id}/explain"))
    assert (explained.state, explained.waiting_reason, explained.devices) == (JobState.ASSIGNED, "", [])


async def test_an_attempt_shows_its_state_and_how_far_its_events_are_stored(lab: Lab) -> None:
    await lab.submit()
    lease = await lab.claim()
    story = await lab.carry_out(lease)
    attempt = AttemptView.model_validate(await lab.get(f"/v1/attempts/{lease.attempt_id}"))
    assert (attempt.state, attempt.number) == (AttemptState.SUCCEEDED, 1)
    assert attempt.next_seq == {stream.value: len(events) + 1 for stream, events in story.events.items()}


async def test_events_are_read_page_by_page_as_they_were_written(lab: Lab) -> None:
    await lab.submit()
    lease = await lab.claim()
    story = await lab.carry_out(lease)
    path = f"/v1/attempts/{lease.attempt_id}/events"
    read: list[dict[str, Any]] = []
    after = 0
    while True:
        page = EventsPage.model_validate(await lab.get(path, stream="control", after_seq=after, limit=50))
        if not page.events:
            break
        read += page.events
        after = page.next_seq - 1
    assert read == [event.model_dump(mode="json") for event in story.events["control"]]
    assert page.next_seq == len(read) + 1


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/jobs/job_01J00000000000000000000000", "job-not-found"),
        ("/v1/jobs/job_01J00000000000000000000000/explain", "job-not-found"),
        ("/v1/attempts/att_01J00000000000000000000000", "attempt-not-found"),
        ("/v1/attempts/att_01J00000000000000000000000/events", "attempt-not-found"),
        ("/v1/devices/nope", "device-not-found"),
    ],
)
async def test_what_is_not_there_is_said_so(farm: Farm, path: str, code: str) -> None:
    async with farm.client("viewer") as client:
        response = await client.get(path)
    assert (response.status_code, response.json()["code"]) == (404, code)


async def test_devices_are_listed_with_the_attempt_that_has_them(lab: Lab) -> None:
    await lab.submit()
    lease = await lab.claim()
    (device,) = DevicePage.model_validate(await lab.get("/v1/devices")).devices
    assert (device.device_id, device.state) == ("host-1", DeviceState.LEASED)
    assert (device.attempt_id, device.fence) == (lease.attempt_id, lease.fence)
    assert DeviceView.model_validate(await lab.get("/v1/devices/host-1")) == device


@pytest.mark.parametrize(
    ("action", "state"), [("quarantine", DeviceState.QUARANTINED), ("maintain", DeviceState.MAINTENANCE)]
)
async def test_a_person_takes_a_device_out_and_puts_it_back(
    lab: Lab, action: str, state: DeviceState
) -> None:
    response = await _act(lab.farm, f"/v1/devices/host-1:{action}", {"reason": "swollen battery"})
    device = DeviceView.model_validate(response.json())
    assert (device.state, device.reasons) == (state, ["swollen battery"])
    released = await _act(lab.farm, "/v1/devices/host-1:release", {"reason": "new battery"})
    assert DeviceView.model_validate(released.json()).state is DeviceState.CHECKING
    with lab.farm.context.view() as work:
        about_it = select(AuditRow).where(AuditRow.subject == "host-1").order_by(AuditRow.audit_id)
        kept = work.session.scalars(about_it).all()
    assert [(row.action, row.principal, row.detail) for row in kept] == [
        (action, "admin", "swollen battery"),
        ("release", "admin", "new battery"),
    ]


async def test_a_decision_needs_a_reason(lab: Lab) -> None:
    response = await _act(lab.farm, "/v1/devices/host-1:quarantine", {"reason": ""})
    assert Problem.model_validate(response.json()).errors[0].pointer == "/reason"


async def test_what_cannot_be_done_in_this_state_is_a_conflict(lab: Lab) -> None:
    response = await _act(lab.farm, "/v1/devices/host-1:release", {"reason": "x"})
    assert (response.status_code, response.json()["code"]) == (409, "invalid-transition")


async def test_workloads_and_metrics_are_listed(lab: Lab) -> None:
    workloads = WorkloadList.model_validate(await lab.get("/v1/workloads")).workloads
    assert {"single", "chain", "shared-prefix", "soak"} <= {workload.name for workload in workloads}
    metrics = MetricList.model_validate(await lab.get("/v1/metrics")).metrics
    assert [metric.name for metric in metrics] == list(METRICS)


async def test_an_enrolment_token_works_once(farm: Farm) -> None:
    created = await _act(farm, "/v1/enrollment-tokens", {"name": "shelf 3", "valid_s": 60})
    assert created.status_code == 201
    token = NewToken.model_validate(created.json()).token
    async with farm.client(token) as client:
        first = await client.post("/device-agent/enroll", json={"agent_name": "lab-1"})
        second = await client.post("/device-agent/enroll", json={"agent_name": "lab-2"})
    assert (first.status_code, second.status_code) == (200, 401)


async def test_an_enrolment_token_needs_no_body_and_lives_an_hour_at_most(farm: Farm) -> None:
    async with farm.client("admin") as client:
        assert (await client.post("/v1/enrollment-tokens")).status_code == 201
    response = await _act(farm, "/v1/enrollment-tokens", {"valid_s": 3601})
    assert Problem.model_validate(response.json()).errors[0].pointer == "/valid_s"


async def test_a_database_that_is_not_migrated_is_not_ready_but_the_process_is_healthy(farm: Farm) -> None:
    with farm.context.unit_of_work() as work:
        work.session.connection().exec_driver_sql("DELETE FROM alembic_version")
    async with farm.client() as client:
        ready, health = await client.get("/ready"), await client.get("/health")
    assert (ready.status_code, health.status_code) == (503, 200)
    assert Health.model_validate(ready.json()).checks["database"].startswith("the database is not migrated")


async def test_metrics_count_the_farm_s_rows_by_state(lab: Lab) -> None:
    await lab.submit()
    async with lab.farm.client("viewer") as client:
        text = (await client.get("/metrics")).text
    for line in (
        'dynofarm_runs{state="active"} 1.0',
        'dynofarm_jobs{state="queued"} 1.0',
        'dynofarm_devices{state="ready"} 1.0',
    ):
        assert line in text


async def test_the_document_of_the_api_is_served_to_those_who_may_read(farm: Farm) -> None:
    async with farm.client("viewer") as client:
        document = (await client.get("/v1/openapi.json")).json()
    assert "/v1/runs/{run_id}/comparison" in document["paths"]


# --- artifacts


async def test_a_run_lists_its_files_and_a_person_saves_them(lab: Lab) -> None:
    run = await lab.submit()
    lease = await lab.claim()
    content = b"<script>alert(1)</script>\n"
    await lab.agent.put_artifact(lease, "runtime.log", content)
    listed = ArtifactList.model_validate(await lab.get(f"/v1/runs/{run.run_id}/artifacts"))
    (file,) = listed.artifacts
    assert (file.attempt_id, file.name, file.kind) == (lease.attempt_id, "runtime.log", "runtime_log")
    assert (file.size_bytes, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    async with lab.farm.client("viewer") as client:
        answer = await client.get(f"/v1/attempts/{lease.attempt_id}/artifacts/runtime.log")
    assert answer.content == content
    # Whatever a program on a device wrote, no browser makes a page of it.
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_a_file_that_is_not_there_is_said_so(lab: Lab) -> None:
    await lab.submit()
    lease = await lab.claim()
    async with lab.farm.client("viewer") as client:
        missing = await client.get(f"/v1/attempts/{lease.attempt_id}/artifacts/runtime.log")
        outside = await client.get(f"/v1/attempts/{lease.attempt_id}/artifacts/..%2F..%2Fadmin-token")
    assert (missing.status_code, missing.json()["code"]) == (404, "artifact-not-found")
    assert outside.status_code in (404, 422)
