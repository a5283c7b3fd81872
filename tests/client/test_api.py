"""Every public route through the typed client, against a controller at the wire."""

import pytest

from client.api import EVENTS_PER_PAGE, DynofarmClient
from client.errors import InconclusiveError, NoCapacityError, UsageError
from contract.administration import EnrollmentTokenRequest
from contract.events import Stream
from contract.queries import ComparisonQuery
from contract.rest import DeviceSelector, WorkloadRequest
from contract.states import DeviceState, RunOutcome
from tests.client.conftest import AddRun, request_for
from tests.fakes.rest_controller import ENROLLMENT_TOKEN, RestController
from tests.fakes.scripted_run import DEVICE_ID


def test_a_submitted_run_can_be_followed_to_its_report(client: DynofarmClient) -> None:
    run = client.submit(request_for())
    while client.run(run.run_id).outcome is None:
        pass
    assert client.report(run.run_id).outcome is RunOutcome.PASSED
    assert client.gate(run.run_id).verdict == "pass"


def test_a_lost_answer_makes_no_second_run(client: DynofarmClient, controller: RestController) -> None:
    controller.lost_answers = 2
    run = client.submit(request_for())
    assert list(controller.runs) == [run.run_id]
    submits = [asked for asked in controller.asked if asked.path == "/v1/runs"]
    assert len({asked.headers["idempotency-key"] for asked in submits}) == 1
    assert len(submits) == 3


def test_two_submits_are_two_runs_and_one_key_is_one_run(client: DynofarmClient) -> None:
    first, second = client.submit(request_for()), client.submit(request_for())
    assert first.run_id != second.run_id
    assert client.submit(request_for(), "k").run_id == client.submit(request_for(), "k").run_id


def test_runs_come_newest_first_page_by_page(client: DynofarmClient, add_run: AddRun) -> None:
    ids = [add_run().run_id for _ in range(3)]
    page = client.runs(limit=2)
    assert [run.run_id for run in page.runs] == [ids[2], ids[1]]
    assert page.next_page_token
    last = client.runs(page.next_page_token, limit=2)
    assert [run.run_id for run in last.runs] == [ids[0]]
    assert last.next_page_token is None


def test_events_come_whole_over_all_pages(client: DynofarmClient, add_run: AddRun) -> None:
    run = add_run(polls=0)
    run.request = run.request.model_copy(update={"repetitions": 60})
    run.__post_init__()
    seqs = [event["seq"] for event in client.events(run.attempt_id, Stream.CONTROL)]
    assert len(seqs) > EVENTS_PER_PAGE
    assert seqs == list(range(1, len(seqs) + 1))
    assert next(client.events(run.attempt_id, Stream.CONTROL, 7))["seq"] == 8


def test_a_gate_before_its_time_is_inconclusive(client: DynofarmClient, add_run: AddRun) -> None:
    with pytest.raises(InconclusiveError):
        client.gate(add_run(polls=9).run_id)


def test_a_cancelled_run_says_so(client: DynofarmClient, add_run: AddRun) -> None:
    run_id = add_run(polls=9).run_id
    assert client.cancel(run_id).outcome is RunOutcome.CANCELLED
    assert client.cancel(run_id).outcome is RunOutcome.CANCELLED


def test_a_job_and_its_attempt_can_be_asked_for(client: DynofarmClient, add_run: AddRun) -> None:
    run = add_run(polls=5)
    assert client.explain(run.job_id).waiting_reason == "no device is free"
    run.look()
    assert client.job(run.job_id).attempts == [client.attempt(run.attempt_id)]
    assert client.live(run.run_id).attempt_id == run.attempt_id


def test_devices_are_listed_shown_and_acted_on(client: DynofarmClient) -> None:
    assert [device.device_id for device in client.devices().devices] == [DEVICE_ID]
    assert client.quarantine(DEVICE_ID, "odd heat").reasons == ["odd heat"]
    assert client.maintain(DEVICE_ID, "new cable").state is DeviceState.MAINTENANCE
    assert client.release(DEVICE_ID, "done").state is DeviceState.CHECKING
    assert client.device(DEVICE_ID).state is DeviceState.CHECKING


def test_two_runs_compare_or_say_why_not(client: DynofarmClient, add_run: AddRun) -> None:
    one, other = add_run(polls=0), add_run(polls=0, wall_ms={"serial": 1000.0, "paged": 500.0})
    one.look(), other.look()
    comparison = client.comparison(other.run_id, ComparisonQuery(baseline=one.run_id))
    assert comparison.change_percent["wall_s"] == pytest.approx(25.0)
    strange = add_run("another-model", polls=0)
    strange.look()
    with pytest.raises(UsageError):
        client.comparison(strange.run_id, ComparisonQuery(baseline=one.run_id))
    assert client.comparison(strange.run_id, ComparisonQuery(baseline=one.run_id, force=True)).differs


def test_bad_requests_name_the_field(client: DynofarmClient) -> None:
    unknown = request_for().model_copy(update={"workload": WorkloadRequest(name="nothing")})
    with pytest.raises(UsageError, match="nothing") as raised:
        client.submit(unknown)
    assert raised.value.errors[0].pointer == "/workload"
    nowhere = request_for().model_copy(update={"selectors": [DeviceSelector(device_id="gone")]})
    with pytest.raises(NoCapacityError):
        client.submit(nowhere)


def test_catalogues_health_and_enrolment(client: DynofarmClient) -> None:
    assert "shared-prefix" in [workload.name for workload in client.workloads().workloads]
    assert "wall_s" in [metric.name for metric in client.metrics().metrics]
    assert client.health().status == client.ready().status == "ok"
    assert client.enrollment_token(EnrollmentTokenRequest()).token == ENROLLMENT_TOKEN
