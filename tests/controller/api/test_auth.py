"""Nobody passes whom the controller does not know; a token opens what it is for and no more."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update
from starlette.routing import Mount

from contract.headers import SESSION_COOKIE
from contract.routes import LOGOUT_PATH
from controller.api.auth import OPEN_PATHS
from controller.api.sessions import SESSION_DURATION
from controller.db.models import TokenKind, TokenRow, TokenScope
from controller.db.tokens import TokenGrant, token_digest
from tests.fakes.farm import Farm

pytestmark = pytest.mark.anyio

IDS = {
    "run_id": "run_01J00000000000000000000000",
    "job_id": "job_01J00000000000000000000000",
    "attempt_id": "att_01J00000000000000000000000",
    "lease_id": "lea_01J00000000000000000000000",
    "device_id": "host-1",
    "device_agent_id": "agt_01J00000000000000000000000",
    "token_id": "0" * 16,
    "name": "x",
}
# What only reads: a viewer may. Everything else of the public surface needs more.
READING = {"GET", "HEAD"}
# Who has which token, and who did what.
ADMINS_ONLY = {"/v1/audit", "/v1/tokens"}


def _routes(farm: Farm) -> Iterator[tuple[str, str]]:
    """Every (method, path) that the application answers, ids filled in."""
    for route in _flat(farm.app.routes):
        path = route.path
        for name, value in IDS.items():
            path = path.replace(f"{{{name}}}", value)
        assert "{" not in path, f"{route.path} has a parameter that this test does not know"
        for method in sorted(route.methods):
            yield method, path


def _flat(routes: Iterable[Any]) -> Iterator[Any]:
    """Routes with a path and methods, those of included routers too; a mounted application has none."""
    for route in routes:
        if hasattr(route, "effective_candidates"):
            yield from _flat(route.effective_candidates())
        elif getattr(route, "methods", None):
            yield route
        else:
            assert isinstance(route, Mount), f"{route!r} is of a kind that this test does not know"


async def test_every_route_but_the_open_ones_refuses_without_a_token(farm: Farm) -> None:
    seen = list(_routes(farm))
    assert len(seen) > 25
    async with farm.client() as client:
        for method, path in seen:
            if path in OPEN_PATHS:
                continue
            response = await client.request(method, path)
            assert response.status_code == 401, (method, path)
            assert response.headers["www-authenticate"] == "Bearer"


async def test_an_address_that_does_not_exist_tells_nothing_without_a_token(farm: Farm) -> None:
    async with farm.client() as client:
        for path in ("/nowhere", "/dashboard/x", "/health/", "/Health", "/login/x", "/v1/openapi.json"):
            assert (await client.get(path)).status_code == 401, path


async def test_health_ready_and_login_are_open(farm: Farm) -> None:
    async with farm.client() as client:
        for path in OPEN_PATHS - {LOGOUT_PATH}:
            assert (await client.get(path)).status_code == 200, path


async def test_a_viewer_may_read_and_change_nothing(farm: Farm) -> None:
    async with farm.client("viewer") as client:
        for method, path in _routes(farm):
            if path in OPEN_PATHS or path.startswith("/device-agent/"):
                continue
            status = (await client.request(method, path, json={"reason": "x"})).status_code
            if method in READING and path not in ADMINS_ONLY:
                assert status not in (401, 403), (method, path)
            else:
                assert status == 403, (method, path)


async def test_a_submitter_may_submit_but_not_run_the_lab(farm: Farm) -> None:
    async with farm.client("submitter") as client:
        assert (await client.post("/v1/runs", json={})).status_code == 422
        assert (await client.post("/v1/enrollment-tokens")).status_code == 403
        assert (await client.post("/v1/devices/host-1:release", json={"reason": "x"})).status_code == 403


async def test_a_person_s_token_is_no_agent_s_and_the_other_way_round(farm: Farm) -> None:
    agent = await farm.agent()
    enrolment = farm.issue(TokenGrant(TokenKind.ENROLMENT, "e"))
    calls = {"/v1/runs": "GET", "/device-agent/hello": "POST", "/device-agent/enroll": "POST"}
    allowed = {"/v1/runs": "admin", "/device-agent/hello": agent.token, "/device-agent/enroll": enrolment}
    for token in ("admin", agent.token, enrolment):
        async with farm.client(token) as client:
            for path, method in calls.items():
                status = (await client.request(method, path, json={})).status_code
                assert (status == 403) == (allowed[path] != token), (path, token)


@pytest.mark.parametrize(
    "header",
    ["Bearer dyn_wrong", "Bearer", "Bearer ", "Basic YWRtaW46YWRtaW4=", "", "dyn_x", "Bearer \u00e9"],
)
async def test_a_bad_authorization_header_is_refused(farm: Farm, header: str) -> None:
    async with farm.client(headers={"Authorization": header.encode()}) as client:
        assert (await client.get("/v1/runs")).status_code == 401


async def test_the_stored_digest_is_no_token(farm: Farm) -> None:
    async with farm.client(token_digest(farm.tokens["admin"])) as client:
        assert (await client.get("/v1/runs")).status_code == 401


@pytest.mark.parametrize("change", [{"revoked_at": timedelta()}, {"expires_at": timedelta()}])
async def test_a_token_that_ended_is_refused_at_the_next_request(
    farm: Farm, change: dict[str, timedelta]
) -> None:
    async with farm.client("viewer") as client:
        assert (await client.get("/v1/runs")).status_code == 200
        with farm.context.unit_of_work() as work:
            times = {name: work.now - offset for name, offset in change.items()}
            work.session.execute(update(TokenRow).where(TokenRow.name == "viewer").values(**times))
        assert (await client.get("/v1/runs")).status_code == 401


def _session_of(farm: Farm, scope: str, age: timedelta = timedelta()) -> dict[str, str]:
    began = farm.context.now() - age
    cookie = farm.app.state.signer.cookie_for(token_digest(farm.tokens[scope]), began)
    return {SESSION_COOKIE: cookie}


async def test_a_session_alone_reads_but_never_writes(farm: Farm) -> None:
    async with farm.client(cookies=_session_of(farm, "admin")) as client:
        assert (await client.get("/v1/runs")).status_code == 200
        for method, path in _routes(farm):
            if method not in READING and path not in OPEN_PATHS:
                assert (await client.request(method, path, json={})).status_code == 401, (method, path)


async def test_a_session_ends(farm: Farm) -> None:
    for age, status in ((SESSION_DURATION - timedelta(minutes=1), 200), (SESSION_DURATION, 401)):
        async with farm.client(cookies=_session_of(farm, "viewer", age)) as client:
            assert (await client.get("/v1/runs")).status_code == status


@pytest.mark.parametrize(
    "forge",
    [lambda c: c[:-1] + "x", lambda c: ("b" if c[0] == "a" else "a") + c[1:], lambda c: "", lambda c: "."],
)
async def test_a_forged_session_is_refused(farm: Farm, forge: Any) -> None:
    cookie = _session_of(farm, "admin")[SESSION_COOKIE]
    async with farm.client(cookies={SESSION_COOKIE: forge(cookie)}) as client:
        assert (await client.get("/v1/runs")).status_code == 401


async def test_a_session_may_post_from_a_page_of_its_own_host_only(farm: Farm) -> None:
    cookies = _session_of(farm, "viewer")
    for origin, status in (
        ("http://127.0.0.1", 404),
        ("http://evil.example", 401),
        (None, 401),
        ("null", 401),
        ("http://[", 401),
    ):
        headers = {"Origin": origin} if origin else {}
        async with farm.client(cookies=cookies, headers=headers) as client:
            assert (await client.post("/dashboard/_ask", json={})).status_code == status, origin
            # As ever, the scope decides what is allowed: a viewer submits and cancels nothing.
            allowed = 403 if status == 404 else status
            for path in ("/v1/runs", "/v1/runs/run_01ARZ3NDEKTSV4RRFFQ69G5FAV:cancel"):
                assert (await client.post(path, json={})).status_code == allowed, origin


async def test_a_browser_on_its_way_to_the_dashboard_is_shown_the_form(farm: Farm) -> None:
    async with farm.client(headers={"Accept": "text/html"}) as client:
        response = await client.get("/dashboard/runs/x?tab=live")
        assert response.status_code == 303
        assert response.headers["location"] == "/login?next=%2Fdashboard%2Fruns%2Fx%3Ftab%3Dlive"
        assert (await client.get("/v1/runs")).status_code == 401


async def test_a_token_is_stored_as_its_hash_only(farm: Farm) -> None:
    with farm.context.view() as work:
        rows = work.session.query(TokenRow).all()
    assert {row.scope for row in rows} == set(TokenScope)
    everything = repr([vars(row) for row in rows])
    assert not any(text in everything for text in farm.tokens.values())
