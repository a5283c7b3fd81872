"""What admins do and read: histories, the audit, reservations, device agents, tokens, sessions."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update

from contract.administration import (
    AuditPage,
    DeviceAgentList,
    DeviceHistory,
    NewToken,
    TokenPage,
    TokenScope,
)
from contract.headers import SESSION_COOKIE
from contract.rest import DevicePage, DeviceView
from contract.states import DeviceState
from controller.db.models import AuditRow, DeviceRow, TokenRow
from controller.db.tokens import token_digest, token_id
from controller.tasks.context import TaskContext
from controller.tasks.upkeep import sweep_if_due
from tests.fakes.farm import BASE_URL, Farm, host_report
from tests.fakes.session import Lab

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lab(farm: Farm) -> Lab:
    return await Lab.of(farm)


async def ask(farm: Farm, path: str, who: str = "admin", **query: Any) -> Any:
    async with farm.client(who) as client:
        response = await client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def act(farm: Farm, path: str, body: Any = None) -> httpx.Response:
    async with farm.client("admin") as client:
        return await client.post(path, json=body)


# --- devices


async def test_a_device_s_history_says_when_why_and_by_whom(lab: Lab) -> None:
    await act(lab.farm, "/v1/devices/host-1:maintain", {"reason": "new battery"})
    history = DeviceHistory.model_validate(await ask(lab.farm, "/v1/devices/host-1/history", "viewer"))
    newest, *older = history.transitions
    assert (newest.from_state, newest.to_state) == (DeviceState.READY, DeviceState.MAINTENANCE)
    assert (newest.cause, newest.detail, newest.actor) == ("maintenance_ordered", "new battery", "admin")
    assert {each.actor for each in older} == {""}
    assert older[-1].from_state is DeviceState.UNKNOWN


async def test_a_history_is_read_page_by_page_without_a_gap(lab: Lab) -> None:
    path = "/v1/devices/host-1/history"
    whole = DeviceHistory.model_validate(await ask(lab.farm, path)).transitions
    read, token = [], None
    while True:
        query = {"limit": 1} | ({"page_token": token} if token else {})
        page = DeviceHistory.model_validate(await ask(lab.farm, path, **query))
        read += page.transitions
        if (token := page.next_page_token) is None:
            break
    assert read == whole
    assert len(read) > 2


async def test_a_reserved_device_gets_no_work_until_its_time_is_over(lab: Lab) -> None:
    await lab.submit()
    reserved = await act(lab.farm, "/v1/devices/host-1:reserve", {"reason": "a look", "period_s": 3600})
    device = DeviceView.model_validate(reserved.json())
    assert (device.state, device.reasons) == (DeviceState.RESERVED, ["reserved by admin: a look"])
    assert device.reserved_until is not None
    # Also when the person takes it off its cable for a while.
    await lab.agent.hello()
    await lab.agent.hello(host_report())
    assert await lab.agent.claim("host-1") is None
    with lab.farm.context.unit_of_work() as work:
        over = work.now - timedelta(seconds=1)
        work.session.execute(update(DeviceRow).values(state_deadline=over))
    sweep_if_due(TaskContext(lab.farm.context.sessions, lab.farm.context.settings), 0)
    assert DeviceView.model_validate(await ask(lab.farm, "/v1/devices/host-1")).state is DeviceState.HELD


async def test_only_a_ready_device_can_be_reserved(lab: Lab) -> None:
    await lab.submit()
    await lab.claim()
    refused = await act(lab.farm, "/v1/devices/host-1:reserve", {"reason": "x", "period_s": 60})
    assert (refused.status_code, refused.json()["code"]) == (409, "invalid-transition")


async def test_a_busy_device_that_is_taken_out_says_what_it_waits_for(lab: Lab) -> None:
    await lab.submit()
    lease = await lab.claim()
    answer = await act(lab.farm, "/v1/devices/host-1:quarantine", {"reason": "smells odd"})
    device = DeviceView.model_validate(answer.json())
    assert (device.state, device.then) == (DeviceState.LEASED, DeviceState.QUARANTINED)
    assert device.attempt_id == lease.attempt_id


async def test_a_retired_device_stays_retired(lab: Lab) -> None:
    await act(lab.farm, "/v1/devices/host-1:retire", {"reason": "broken"})
    await lab.agent.hello(host_report())
    device = DeviceView.model_validate(await ask(lab.farm, "/v1/devices/host-1"))
    assert (device.state, device.reasons) == (DeviceState.RETIRED, ["broken"])


async def test_a_lost_device_says_since_when_nothing_was_heard(lab: Lab) -> None:
    with lab.farm.context.unit_of_work() as work:
        for agent in work.session.scalars(select(DeviceRow.device_agent_id)).all():
            assert agent == lab.agent.device_agent_id
    # The sweep of a later time.
    later = lab.farm.context.now() + timedelta(hours=1)
    context = TaskContext(lab.farm.context.sessions, lab.farm.context.settings, now=lambda: later)
    sweep_if_due(context, 0)
    device = DeviceView.model_validate(await ask(lab.farm, "/v1/devices/host-1"))
    assert device.state is DeviceState.LOST
    assert "nothing was heard of device agent lab-1 since" in device.reasons[0]


async def test_devices_are_found_by_what_is_known_of_them_and_page_by_page(lab: Lab) -> None:
    odd = host_report("host-2", device_model="odd_box", labels={"shelf": "North 50%"})
    await lab.agent.hello(host_report(), odd, host_report("host-3"))

    async def found(**query: Any) -> list[str]:
        page = DevicePage.model_validate(await ask(lab.farm, "/v1/devices", **query))
        return [device.device_id for device in page.devices]

    assert await found() == ["host-1", "host-2", "host-3"]
    assert await found(text="NORTH") == ["host-2"]
    assert await found(text="0%") == ["host-2"]
    assert await found(text="d_b") == ["host-2"]
    assert await found(device_model="testhost", state="ready") == ["host-1", "host-3"]
    assert await found(kind="ios") == []
    assert await found(device_agent_id=lab.agent.device_agent_id, limit=2) == ["host-1", "host-2"]
    assert await found(limit=2, page_token="host-2") == ["host-3"]


# --- device agents


async def test_a_drained_device_agent_gets_no_work_until_it_is_resumed(lab: Lab) -> None:
    await lab.submit()
    path = f"/v1/device-agents/{lab.agent.device_agent_id}"
    drained = await act(lab.farm, f"{path}:drain", {"reason": "new disk"})
    assert drained.json()["draining"]
    assert (await lab.agent.hello(host_report()))["drain"]
    assert await lab.agent.claim("host-1") is None
    (listed,) = DeviceAgentList.model_validate(await ask(lab.farm, "/v1/device-agents")).device_agents
    assert (listed.name, listed.draining, listed.devices) == ("lab-1", True, 1)
    await act(lab.farm, f"{path}:resume", {"reason": "done"})
    assert await lab.agent.claim("host-1") is not None


async def test_a_device_agent_that_never_was_is_said_so(farm: Farm) -> None:
    path = "/v1/device-agents/agt_01J00000000000000000000000:drain"
    missing = await act(farm, path, {"reason": "x"})
    assert (missing.status_code, missing.json()["code"]) == (404, "device-agent-not-found")


# --- the audit


async def test_every_act_is_in_the_audit_with_its_actor(lab: Lab) -> None:
    run = await lab.submit()
    await act(lab.farm, f"/v1/runs/{run.run_id}:cancel")
    await act(lab.farm, "/v1/devices/host-1:quarantine", {"reason": "odd"})
    made = NewToken.model_validate(
        (await act(lab.farm, "/v1/tokens", {"name": "ci", "scope": "submitter"})).json()
    )
    await act(lab.farm, f"/v1/tokens/{made.token_id}:revoke")
    entries = AuditPage.model_validate(await ask(lab.farm, "/v1/audit")).entries
    assert [(each.actor, each.action, each.subject) for each in reversed(entries)] == [
        ("test", "enrol", lab.agent.device_agent_id),
        ("submitter", "submit", run.run_id),
        ("admin", "cancel", run.run_id),
        ("admin", "quarantine", "host-1"),
        ("admin", "token_created", "ci"),
        ("admin", "token_revoked", "ci"),
    ]


async def test_the_audit_is_filtered_by_subject_actor_and_time_and_read_in_pages(lab: Lab) -> None:
    runs = [(await lab.submit()).run_id for _ in range(3)]

    async def found(**query: Any) -> AuditPage:
        return AuditPage.model_validate(await ask(lab.farm, "/v1/audit", **query))

    assert [each.subject for each in (await found(subject=runs[1])).entries] == [runs[1]]
    first = await found(actor="submitter", limit=2)
    assert [each.subject for each in first.entries] == [runs[2], runs[1]]
    rest = await found(actor="submitter", limit=2, page_token=first.next_page_token)
    assert ([each.subject for each in rest.entries], rest.next_page_token) == ([runs[0]], None)
    assert (await found(until=first.entries[-1].at.isoformat(), actor="submitter")).entries == rest.entries
    assert (await found(since="2100-01-01T00:00:00Z")).entries == []


async def test_the_audit_and_the_tokens_are_for_admins(farm: Farm) -> None:
    async with farm.client("submitter") as client:
        for path in ("/v1/audit", "/v1/tokens"):
            assert (await client.get(path)).status_code == 403


async def test_an_enrolment_that_takes_over_a_name_leaves_a_trace(lab: Lab) -> None:
    await lab.farm.agent("lab-1")
    newest = AuditPage.model_validate(await ask(lab.farm, "/v1/audit")).entries[0]
    assert (newest.action, newest.subject) == ("enrol", lab.agent.device_agent_id)
    assert "again as lab-1: its earlier token is revoked" in newest.detail


# --- tokens


async def test_a_token_is_made_used_listed_and_revoked_and_its_text_is_shown_once(farm: Farm) -> None:
    made = NewToken.model_validate(
        (await act(farm, "/v1/tokens", {"name": "ci", "scope": "viewer", "valid_s": 60})).json()
    )
    assert (await ask(farm, "/v1/devices", made.token))["devices"] == []
    listing = await ask(farm, "/v1/tokens", kind="user")
    assert made.token not in str(listing)
    listed = {each.token_id: each for each in TokenPage.model_validate(listing).tokens}
    token = listed[made.token_id]
    assert (token.name, token.scope) == ("ci", TokenScope.VIEWER)
    assert token.last_used_at is not None
    assert (token.expires_at, token.revoked_at) == (made.expires_at, None)
    for _ in range(2):
        assert (await act(farm, f"/v1/tokens/{made.token_id}:revoke")).status_code == 200
    async with farm.client(made.token) as client:
        assert (await client.get("/v1/devices")).status_code == 401
    current = TokenPage.model_validate(await ask(farm, "/v1/tokens")).tokens
    assert made.token_id not in {each.token_id for each in current}
    whole = TokenPage.model_validate(await ask(farm, "/v1/tokens", ended="true")).tokens
    assert made.token_id in {each.token_id for each in whole}


async def test_tokens_are_read_page_by_page(farm: Farm) -> None:
    for number in range(4):
        await act(farm, "/v1/tokens", {"name": f"t{number}", "scope": "viewer", "valid_s": None})
    whole = TokenPage.model_validate(await ask(farm, "/v1/tokens")).tokens
    read, token = [], None
    while True:
        query = {"limit": 2} | ({"page_token": token} if token else {})
        page = TokenPage.model_validate(await ask(farm, "/v1/tokens", **query))
        read += page.tokens
        if (token := page.next_page_token) is None:
            break
    assert read == whole
    assert len(read) == 4 + len(TokenScope)


async def test_the_use_of_a_token_is_written_at_most_once_a_minute(farm: Farm) -> None:
    digest = token_digest(farm.tokens["viewer"])

    def last_use() -> Any:
        with farm.context.view() as work:
            return work.session.get_one(TokenRow, digest).last_used_at

    await ask(farm, "/v1/devices", "viewer")
    first = last_use()
    await ask(farm, "/v1/devices", "viewer")
    assert first is not None
    assert last_use() == first
    with farm.context.unit_of_work() as work:
        work.session.get_one(TokenRow, digest).last_used_at = first - timedelta(minutes=2)
    await ask(farm, "/v1/devices", "viewer")
    assert last_use() >= first


async def test_a_token_that_never_was_is_said_so(farm: Farm) -> None:
    missing = await act(farm, f"/v1/tokens/{'0' * 16}:revoke")
    assert (missing.status_code, missing.json()["code"]) == (404, "token-not-found")


# --- logging out


async def test_logging_out_ends_the_session_for_every_copy_of_its_cookie(farm: Farm) -> None:
    async with farm.client() as client:
        await client.post("/login", content=f"token={farm.tokens['viewer']}")
        cookie = client.cookies[SESSION_COOKIE]
        assert (await client.get("/v1/devices")).status_code == 200
        left = await client.post("/logout", headers={"Origin": BASE_URL})
        assert (left.status_code, left.headers["location"]) == (303, "/login")
        assert SESSION_COOKIE not in client.cookies
    async with farm.client(cookies={SESSION_COOKIE: cookie}) as copy:
        assert (await copy.get("/v1/devices")).status_code == 401
    with farm.context.view() as work:
        acts = work.session.scalars(select(AuditRow.action).order_by(AuditRow.audit_id)).all()
        details = set(work.session.scalars(select(AuditRow.detail)).all())
    assert acts == ["log_in", "log_out"]
    assert details == {token_id(token_digest(farm.tokens["viewer"]))}


async def test_another_site_cannot_log_a_person_out(farm: Farm) -> None:
    async with farm.client() as client:
        await client.post("/login", content=f"token={farm.tokens['viewer']}")
        for headers in ({}, {"Origin": "http://elsewhere.example"}):
            assert (await client.post("/logout", headers=headers)).status_code == 403
        assert (await client.get("/v1/devices")).status_code == 200
