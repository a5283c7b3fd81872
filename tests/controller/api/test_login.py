"""The login form gives a person who has a token a session, and nobody else anything."""

from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest

from contract.headers import SESSION_COOKIE
from controller.api.login import local_target
from tests.fakes.farm import Farm

pytestmark = pytest.mark.anyio


async def _log_in(farm: Farm, token: str, target: str = "", **headers: str) -> httpx.Response:
    async with farm.client(headers=headers) as client:
        return await client.post("/login", params={"next": target}, data={"token": token})


def _cookie(response: httpx.Response) -> Any:
    return SimpleCookie(response.headers["set-cookie"])[SESSION_COOKIE]


async def test_a_good_token_opens_a_session_that_reads(farm: Farm) -> None:
    response = await _log_in(farm, farm.tokens["viewer"], "/dashboard/runs/x?tab=live")
    assert (response.status_code, response.headers["location"]) == (303, "/dashboard/runs/x?tab=live")
    cookie = _cookie(response)
    assert cookie["httponly"]
    assert cookie["samesite"] == "strict"
    assert farm.tokens["viewer"] not in cookie.value
    async with farm.client(cookies={SESSION_COOKIE: cookie.value}) as client:
        assert (await client.get("/v1/runs")).status_code == 200


async def test_the_session_never_travels_without_https_where_that_is_set(farm: Farm) -> None:
    assert not _cookie(await _log_in(farm, farm.tokens["viewer"]))["secure"]
    secure = Farm.at(farm.context.settings.home_path, cookie_secure=True)
    assert _cookie(await _log_in(secure, secure.tokens["viewer"]))["secure"]
    secure.context.sessions.close()


async def test_the_session_needs_https_where_people_come_by_https(farm: Farm) -> None:
    public = Farm.at(farm.context.settings.home_path, public_url="https://farm.example")
    assert _cookie(await _log_in(public, public.tokens["viewer"]))["secure"]
    public.context.sessions.close()


async def test_behind_a_proxy_that_rewrites_the_host_the_public_url_counts(farm: Farm) -> None:
    public = Farm.at(farm.context.settings.home_path, public_url="https://farm.example")
    for origin, status in (("https://farm.example", 303), ("https://evil.example", 403)):
        assert (await _log_in(public, public.tokens["viewer"], Origin=origin)).status_code == status
    public.context.sessions.close()


@pytest.mark.parametrize("origin", ["http://[", "null", "http://", "::", "http://[::1"])
async def test_an_origin_that_is_no_address_is_another_site(farm: Farm, origin: str) -> None:
    assert (await _log_in(farm, "", Origin=origin)).status_code == 403


@pytest.mark.parametrize("token", ["", "dyn_wrong", "x" * 10_000])
async def test_a_bad_token_gets_the_form_again(farm: Farm, token: str) -> None:
    response = await _log_in(farm, token)
    assert response.status_code == 401
    assert "set-cookie" not in response.headers
    assert "not known" in response.text


async def test_an_agent_s_token_opens_no_session(farm: Farm) -> None:
    agent = await farm.agent()
    assert (await _log_in(farm, agent.token)).status_code == 401


async def test_what_was_sent_is_never_shown_again(farm: Farm) -> None:
    response = await _log_in(farm, "<script>alert(1)</script>", "/dashboard/<script>")
    assert "<script>" not in response.text


async def test_a_form_on_another_site_opens_no_session(farm: Farm) -> None:
    response = await _log_in(farm, farm.tokens["viewer"], Origin="http://evil.example")
    assert response.status_code == 403
    assert "set-cookie" not in response.headers
    assert (await _log_in(farm, farm.tokens["viewer"], Origin="http://127.0.0.1")).status_code == 303


async def test_the_form_allows_no_script_and_its_style_is_the_one_it_has(farm: Farm) -> None:
    async with farm.client() as client:
        response = await client.get("/login")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script" not in response.text


@pytest.mark.parametrize("asked", ["/dashboard", "/dashboard/", "/dashboard/runs/x?tab=a", "/dashboard?x=1"])
def test_a_page_of_the_dashboard_is_gone_to(asked: str) -> None:
    assert local_target(asked) == asked


@pytest.mark.parametrize(
    "asked",
    [
        *("", "/", "https://evil.example", "//evil.example", "/dashboard.evil.example", "/v1/runs"),
        *(
            "/dashboard/\\evil.example",
            "/dashboard/\r\nSet-Cookie: a=b",
            "/dashboards",
            "javascript:alert(1)",
        ),
    ],
)
def test_no_other_page_is_gone_to(asked: str) -> None:
    assert local_target(asked) == "/dashboard/"
