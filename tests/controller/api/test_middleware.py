"""Around every request: host, size, id, headers, counts."""

from collections.abc import AsyncIterator

import pytest

from contract.problems import PROBLEM_MEDIA_TYPE, Problem
from tests.fakes.farm import Farm

pytestmark = pytest.mark.anyio


async def test_a_host_that_is_not_ours_is_refused_before_anything_else(farm: Farm) -> None:
    for host, status in (("127.0.0.1:8000", 200), ("localhost", 200), ("evil.example", 400), ("", 400)):
        async with farm.client(headers={"Host": host}) as client:
            response = await client.get("/health")
        assert response.status_code == status, host
        if status == 400:
            problem = Problem.model_validate(response.json())
            assert problem.code == "host-refused"
            assert "DYNOFARM_ALLOWED_HOSTS" in problem.detail
            assert response.headers["content-type"] == PROBLEM_MEDIA_TYPE


async def test_this_machine_s_own_agent_is_let_in_whatever_is_allowed(farm: Farm) -> None:
    home = farm.context.settings.home_path
    for host in ("127.0.0.1", "0.0.0.0", "::", "::1"):
        own = Farm.at(home, host=host, allowed_hosts="farm.example,2001:db8::1")
        for url in (own.context.settings.local_url, "http://farm.example", "http://[2001:db8::1]:8000"):
            async with own.client(headers={"Host": url.removeprefix("http://")}) as client:
                assert (await client.get("/health")).status_code == 200, url
        own.context.sessions.close()


async def test_the_public_name_and_the_address_listened_on_are_ours(farm: Farm) -> None:
    home = farm.context.settings.home_path
    own = Farm.at(home, host="10.1.2.3", public_url="https://farm.example/", allowed_hosts="controller")
    assert own.context.settings.base_url == "https://farm.example"
    for host in ("10.1.2.3", "farm.example", "controller"):
        async with own.client(headers={"Host": host}) as client:
            assert (await client.get("/health")).status_code == 200, host
    own.context.sessions.close()


async def test_a_body_above_the_limit_is_refused_by_its_declared_length(farm: Farm) -> None:
    limit = farm.context.settings.max_body_bytes
    async with farm.client("submitter") as client:
        response = await client.post("/v1/runs", content=b"x" * (limit + 1))
    problem = Problem.model_validate(response.json())
    assert (response.status_code, problem.code) == (413, "payload-too-large")
    assert str(limit) in problem.detail


async def test_a_body_that_does_not_say_its_length_is_refused_when_it_has_passed_the_limit(
    farm: Farm,
) -> None:
    sent_bytes = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent_bytes
        for _ in range(100):
            sent_bytes += 1 << 20
            yield b" " * (1 << 20)

    async with farm.client("submitter") as client:
        response = await client.post("/v1/runs", content=endless())
    assert (response.status_code, response.json()["code"]) == (413, "payload-too-large")
    assert sent_bytes < farm.context.settings.max_body_bytes + (4 << 20)


async def test_every_answer_has_an_id_and_may_not_be_framed_sniffed_or_kept(farm: Farm) -> None:
    async with farm.client() as client:
        for path in ("/health", "/login", "/v1/runs", "/nowhere"):
            headers = (await client.get(path)).headers
            assert len(headers["x-request-id"]) == 32
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert headers["cache-control"] == "no-store"
            # A stricter policy makes browsers send a null Origin with the login form.
            assert headers["referrer-policy"] == "same-origin"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize(("given", "kept"), [("ci-run-12345", True), ("a b\tc", False), ("x" * 65, False)])
async def test_the_caller_s_id_is_kept_when_it_is_a_plain_word(farm: Farm, given: str, *, kept: bool) -> None:
    async with farm.client(headers={"X-Request-Id": given}) as client:
        response = await client.get("/v1/runs")
    assert (response.headers["x-request-id"] == given) is kept
    assert response.json()["trace_id"] == response.headers["x-request-id"]


async def test_requests_are_counted_by_route_and_never_by_address(farm: Farm) -> None:
    run = "run_01J00000000000000000000000"
    async with farm.client("viewer") as client:
        await client.get(f"/v1/runs/{run}")
        text = (await client.get("/metrics")).text
    assert 'dynofarm_http_requests_total{method="GET",route="/v1/runs/{run_id}",status="404"} 1.0' in text
    assert run not in text
