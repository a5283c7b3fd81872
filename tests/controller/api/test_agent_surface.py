"""The agent surface over HTTP: every answer and every refusal of the lease protocol."""

import asyncio
import gzip
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from sqlalchemy.pool import QueuePool
from ulid import ULID

from contract.agent_api import EventBatchHeader, Lease
from contract.artifacts import MAX_ARTIFACTS_PER_ATTEMPT
from contract.problems import Problem
from contract.rest import DeviceSelector
from contract.states import JobState, RunState
from controller.db.models import ClaimRow, JobRow, RunRow, TokenKind
from controller.db.tokens import TokenGrant
from tests.controller.farm import control_lines, spec_template
from tests.fakes.farm import FakeAgent, Farm, host_report

pytestmark = pytest.mark.anyio

HOST = host_report().model_dump(mode="json")


@pytest.fixture
async def agent(farm: Farm) -> FakeAgent:
    made = await farm.agent()
    await made.hello(host_report())
    return made


@pytest.fixture
async def lease(farm: Farm, agent: FakeAgent) -> Lease:
    add_job(farm)
    granted = await agent.claim("host-1")
    assert granted is not None
    return granted


def add_job(farm: Farm) -> str:
    """A run with one job that any host may run; returns the job's id."""
    run_id, job_id = f"run_{ULID()}", f"job_{ULID()}"
    with farm.context.unit_of_work() as work:
        run = RunRow(
            run_id=run_id, state=RunState.ACTIVE, request={}, workload="tiny", workload_digest="",
            model="tiny", labels={}, principal="test", created_at=work.now,
        )  # fmt: skip
        work.session.add(run)
        work.session.flush()
        job = JobRow(
            job_id=job_id, run_id=run_id, position=0, selector=DeviceSelector().model_dump(mode="json"),
            model="tiny", spec=spec_template(run_id, job_id), state=JobState.QUEUED, priority=5,
            excluded_devices=[], max_attempts=3, queue_deadline=work.after(3600), created_at=work.now,
        )  # fmt: skip
        work.session.add(job)
    return job_id


def batch(lease: Lease, lines: list[bytes], **header: Any) -> bytes:
    values: dict[str, Any] = {
        "stream": "control",
        "first_seq": 1,
        "count": len(lines),
        "fence": lease.fence,
        "sent_at": datetime.now(UTC),
        **header,
    }
    return gzip.compress(b"\n".join([EventBatchHeader(**values).model_dump_json().encode(), *lines]) + b"\n")


async def send(agent: FakeAgent, lease: Lease, body: bytes, encoding: str = "gzip") -> httpx.Response:
    async with agent.farm.client(agent.token, headers={"Content-Encoding": encoding}) as client:
        return await client.post(f"/device-agent/attempts/{lease.attempt_id}/events", content=body)


async def put(agent: FakeAgent, path: str, **options: Any) -> httpx.Response:
    async with agent.farm.client(agent.token) as client:
        return await client.put(path, **options)


async def put_file(agent: FakeAgent, lease: Lease, name: str, content: bytes, **said: Any) -> httpx.Response:
    """Upload a file as an honest device agent does, unless told otherwise."""
    query = {
        "fence": lease.fence,
        "kind": "runtime_log",
        "sha256": hashlib.sha256(content).hexdigest(),
        **said,
    }
    path = f"/device-agent/attempts/{lease.attempt_id}/artifacts/{name}"
    return await put(agent, path, params=query, content=content)


def problem(response: httpx.Response) -> tuple[int, str]:
    """Status and code of a problem document, which it must be."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    document = Problem.model_validate(response.json())
    assert document.status == response.status_code
    return document.status, document.code


def result(lease: Lease, **fields: Any) -> dict[str, Any]:
    return {"fence": lease.fence, "outcome": "succeeded", "last_seq": {"control": 3}, **fields}


async def test_an_attempt_from_enrolment_to_result(farm: Farm, agent: FakeAgent, lease: Lease) -> None:
    lines = control_lines(lease.attempt_id, 3)
    answer = (await send(agent, lease, batch(lease, lines))).json()
    assert answer == {"next_seq": 4, "min_interval_s": 0.0, "directive": "continue"}
    path = f"/device-agent/attempts/{lease.attempt_id}/result"
    done = await put(agent, path, json=result(lease))
    assert done.json() == {"attempt_id": lease.attempt_id, "state": "succeeded", "salvaged": False}
    assert (await put(agent, path, json=result(lease))).json() == done.json()


async def test_a_hello_of_an_unknown_contract_is_outdated_even_with_unknown_fields(agent: FakeAgent) -> None:
    response = await agent.post("/device-agent/hello", {"contract_version": "9.9", "brand_new_field": 1})
    assert problem(response) == (426, "device-agent-outdated")


async def test_an_enrolment_of_an_unknown_contract_is_outdated(farm: Farm) -> None:
    token = farm.issue(TokenGrant(TokenKind.ENROLMENT, "test"))
    async with farm.client(token) as client:
        response = await client.post(
            "/device-agent/enroll", json={"agent_name": "x", "contract_version": "9.9"}
        )
    assert problem(response) == (426, "device-agent-outdated")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"agent_version": 1}', b'{"contract_version": 1}', b'"\xff"', b"[" * 100_000],
    ids=["empty", "cut", "list", "short", "version", "not UTF-8", "deep"],
)
async def test_a_hello_that_cannot_be_read_is_named(agent: FakeAgent, body: bytes) -> None:
    async with agent.farm.client(agent.token) as client:
        response = await client.post("/device-agent/hello", content=body)
    assert problem(response) == (422, "validation")


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"sent_at": "9999-12-31T23:59:59-23:00"}, "/sent_at"),
        ({"sent_at": "0001-01-01T00:00:00+23:00"}, "/sent_at"),
        ({"devices": [{**HOST, "generation": 2**70}]}, "/devices/0/generation"),
        ({"devices": [{**HOST, "device_model": "x" * 501}]}, "/devices/0/device_model"),
        ({"devices": [{**HOST, "properties": {"a": float("nan")}}]}, "/devices/0/properties/a"),
        ({"devices": [{**HOST, "os_name": "a\0b"}]}, "/devices/0/os_name"),
        ({"devices": [HOST, HOST]}, "devices: two have the id 'host-1'"),
    ],
    ids=["year 9999", "year 1", "generation", "long", "NaN", "NUL", "twice"],
)
async def test_a_hello_that_the_books_cannot_hold_is_refused_by_its_field(
    agent: FakeAgent, changed: dict[str, Any], field: str
) -> None:
    body = json.dumps({**agent.hello_body(), **changed}).encode()
    async with agent.farm.client(agent.token) as client:
        response = await client.post("/device-agent/hello", content=body)
    assert problem(response) == (422, "validation")
    assert field in response.json()["detail"]


async def test_a_gap_says_where_to_go_on(agent: FakeAgent, lease: Lease) -> None:
    lines = control_lines(lease.attempt_id, 2, first_seq=5)
    response = await send(agent, lease, batch(lease, lines, first_seq=5))
    assert problem(response) == (409, "events-gap")
    assert (response.json()["next_seq"], response.json()["stream"]) == (1, "control")


async def test_another_content_is_a_conflict(agent: FakeAgent, lease: Lease) -> None:
    await send(agent, lease, batch(lease, control_lines(lease.attempt_id, 2)))
    response = await send(agent, lease, batch(lease, control_lines(lease.attempt_id, 2, mark=1)))
    assert problem(response) == (422, "seq-conflict")


async def test_a_bad_line_is_named_and_nothing_of_its_batch_is_stored(agent: FakeAgent, lease: Lease) -> None:
    good = control_lines(lease.attempt_id, 2)
    bad = json.dumps({**json.loads(good[1]), "stage": "nonsense"}).encode()
    response = await send(agent, lease, batch(lease, [good[0], bad]))
    assert problem(response) == (422, "validation")
    assert response.json()["errors"][0]["pointer"] == "/3/stage"
    assert "line 3" in response.json()["detail"]
    assert (await send(agent, lease, batch(lease, good))).json()["next_seq"] == 3


async def test_a_wrong_fence_is_fenced_everywhere(agent: FakeAgent, lease: Lease) -> None:
    wrong = lease.fence + 1
    lines = control_lines(lease.attempt_id, 1)
    assert problem(await send(agent, lease, batch(lease, lines, fence=wrong))) == (409, "fenced")
    body = {"fence": wrong, "phase": "running", "sent_at": datetime.now(UTC).isoformat()}
    assert problem(await agent.post(f"/device-agent/leases/{lease.lease_id}:renew", body)) == (409, "fenced")
    path = f"/device-agent/attempts/{lease.attempt_id}/result"
    assert problem(await put(agent, path, json=result(lease, fence=wrong))) == (409, "fenced")


async def test_a_lease_that_never_was_is_gone(agent: FakeAgent) -> None:
    body = {"fence": 1, "phase": "running", "sent_at": datetime.now(UTC).isoformat()}
    assert problem(await agent.post(f"/device-agent/leases/lea_{ULID()}:renew", body)) == (410, "lease-gone")


async def test_what_a_result_lacks_is_named(agent: FakeAgent, lease: Lease) -> None:
    path = f"/device-agent/attempts/{lease.attempt_id}/result"
    missing = await put(agent, path, json=result(lease))
    assert problem(missing) == (409, "events-missing")
    assert (missing.json()["next_seq"], missing.json()["stream"]) == (1, "control")
    await send(agent, lease, batch(lease, control_lines(lease.attempt_id, 3)))
    content = b"report"
    reference = {"name": "crash", "sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    missing = await put(agent, path, json=result(lease, artifacts=[reference]))
    assert problem(missing) == (409, "artifacts-missing")
    assert missing.json()["missing"] == ["crash"]
    assert (await put_file(agent, lease, "crash", content)).json() == reference
    assert problem(await put_file(agent, lease, "crash", b"other")) == (409, "artifact-conflict")
    assert (await put(agent, path, json=result(lease, artifacts=[reference]))).json()["state"] == "succeeded"


async def test_a_file_is_refused_by_a_wrong_fence_and_by_a_wrong_digest(
    agent: FakeAgent, lease: Lease
) -> None:
    assert problem(await put_file(agent, lease, "log", b"x", fence=lease.fence + 1)) == (409, "fenced")
    assert problem(await put_file(agent, lease, "log", b"x", sha256="0" * 64)) == (422, "validation")
    assert problem(await put_file(agent, lease, "Log", b"x")) == (422, "validation")
    assert problem(await put_file(agent, lease, "log", b"x", kind="picture")) == (422, "validation")


async def test_after_the_result_no_file_is_taken_but_a_repetition_is_answered(
    agent: FakeAgent, lease: Lease
) -> None:
    await send(agent, lease, batch(lease, control_lines(lease.attempt_id, 3)))
    kept = await put_file(agent, lease, "log", b"x")
    await put(agent, f"/device-agent/attempts/{lease.attempt_id}/result", json=result(lease))
    assert problem(await put_file(agent, lease, "late", b"x")) == (409, "attempt-sealed")
    assert (await put_file(agent, lease, "log", b"x")).json() == kept.json()


async def test_an_attempt_has_at_most_so_many_files(agent: FakeAgent, lease: Lease) -> None:
    for number in range(MAX_ARTIFACTS_PER_ATTEMPT):
        assert (await put_file(agent, lease, f"log-{number}", b"x")).status_code == 200
    assert problem(await put_file(agent, lease, "one-more", b"x")) == (409, "too-many-artifacts")


async def test_too_large_is_refused_before_and_after_unpacking(agent: FakeAgent, lease: Lease) -> None:
    plain = b"x" * ((1 << 20) + 1)
    assert problem(await send(agent, lease, plain, "identity")) == (413, "payload-too-large")
    assert problem(await send(agent, lease, gzip.compress(plain * 20))) == (413, "payload-too-large")


async def test_another_agent_s_attempt_does_not_exist(farm: Farm, agent: FakeAgent, lease: Lease) -> None:
    other = await farm.agent("lab-2")
    body = batch(lease, control_lines(lease.attempt_id, 1))
    assert problem(await send(other, lease, body)) == (404, "attempt-not-found")
    path = f"/device-agent/attempts/{lease.attempt_id}/result"
    assert problem(await put(other, path, json=result(lease))) == (404, "attempt-not-found")


# --- the long poll


async def ask(agent: FakeAgent, wait_s: float, claim_id: str = "") -> httpx.Response:
    body = {"claim_id": claim_id or f"clm_{ULID()}", "devices": ["host-1"], "wait_s": wait_s}
    return await agent.post("/device-agent/claims", body)


async def test_a_claim_waits_for_a_job_and_gets_it_by_looking_itself(tmp_path: Path) -> None:
    farm = Farm.at(tmp_path, claim_look_s=0.2)
    agent = await farm.agent()
    await agent.hello(host_report())
    waiting = asyncio.create_task(ask(agent, 20))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    # This writes a row and gives no signal: the claim finds it although it is not told.
    add_job(farm)
    response = await asyncio.wait_for(waiting, 15)
    assert response.status_code == 200


async def test_a_claim_that_waits_in_vain_gets_204_and_is_remembered(farm: Farm, agent: FakeAgent) -> None:
    claim_id = f"clm_{ULID()}"
    assert (await ask(agent, 0.3, claim_id)).status_code == 204
    with farm.context.unit_of_work() as work:
        assert work.session.get_one(ClaimRow, claim_id).lease_id is None
    add_job(farm)
    assert (await ask(agent, 0, claim_id)).status_code == 204
    assert (await ask(agent, 0)).status_code == 200


async def test_waiting_claims_end_at_once_when_the_controller_stops(farm: Farm, agent: FakeAgent) -> None:
    waiting = asyncio.create_task(ask(agent, 25))
    await asyncio.sleep(0.2)
    farm.context.waiting_claims.close()
    assert (await asyncio.wait_for(waiting, 10)).status_code == 204


async def test_a_waiting_claim_holds_no_connection_of_the_database(tmp_path: Path) -> None:
    farm = Farm.at(tmp_path, claim_look_s=5.0)
    agent = await farm.agent()
    await agent.hello(host_report())
    waiting = [asyncio.create_task(ask(agent, 4)) for _ in range(20)]
    pool = cast(QueuePool, farm.context.sessions.engine.pool)
    in_use = []
    for _ in range(20):
        await asyncio.sleep(0.1)
        in_use.append(pool.checkedout())
    assert not any(task.done() for task in waiting)
    assert min(in_use) == 0
    assert {response.status_code for response in await asyncio.gather(*waiting)} == {204}
    farm.context.sessions.close()
