"""The transport against the real application, and the fake controller of the client's tests beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from contract import routes
from contract.home import HomeFolder
from contract.problems import PROBLEMS, ProblemCode
from contract.rest import DeviceSelector, RunRequest, WorkloadRequest
from rest import errors
from rest.transport import Ask, Caller, Transport
from rest.tries import Patience
from tests.fakes.farm import Farm
from tests.fakes.rest_controller import TOKEN, RestController

URL = "http://127.0.0.1:8000"
NO_RUN = {"run_id": "run_01J00000000000000000000000"}
ONCE = Patience(give_up_after_s=0.0)
NOWHERE = RunRequest(
    workload=WorkloadRequest(name="shared-prefix"), model="tiny", selectors=[DeviceSelector(device_id="gone")]
)


class Noting(httpx.ASGITransport):
    """Carries requests to the application, and remembers which of them showed a token."""

    def __init__(self, farm: Farm) -> None:
        super().__init__(app=farm.app)
        self.shown: list[tuple[str, bool]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.shown.append((request.url.path, "authorization" in request.headers))
        return await super().handle_async_request(request)


def test_a_token_of_the_home_is_sent_to_the_controller_that_knows_it(tmp_path: Path) -> None:
    farm = Farm.at(tmp_path)
    HomeFolder(tmp_path).admin_token_file.write_text(farm.tokens["admin"] + "\n")
    wire = Noting(farm)
    with Transport(URL, Caller(ONCE, must_prove_token=True), wire) as rest:
        rest.authorise(SecretStr(farm.tokens["admin"]))
        for _ in range(2):
            assert rest.ask(Ask(routes.LIST_DEVICES)).devices == []
    assert wire.shown == [("/health", False), ("/v1/devices", True), ("/v1/devices", True)]


@pytest.mark.parametrize(
    ("url", "known"), [(URL, "dyn_another"), (URL, ""), ("http://127.0.0.1:8001", "dyn_own")], ids=str
)
def test_a_token_is_not_sent_to_whoever_listens_where_the_farm_was(
    tmp_path: Path, url: str, known: str
) -> None:
    farm = Farm.at(tmp_path)
    if known:
        HomeFolder(tmp_path).admin_token_file.write_text(known)
    wire = Noting(farm)
    with Transport(url, Caller(ONCE, must_prove_token=True), wire) as rest:
        rest.authorise(SecretStr("dyn_own"))
        with pytest.raises(errors.NotOurFarmError):
            rest.ask(Ask(routes.LIST_DEVICES))
    assert wire.shown == [("/health", False)]


@contextmanager
def _real(tmp_path: Path) -> Iterator[tuple[Transport, str]]:
    farm = Farm.at(tmp_path)
    with Transport(URL, Caller(ONCE), httpx.ASGITransport(app=farm.app)) as rest:
        yield rest, farm.tokens["admin"]


@contextmanager
def _fake(tmp_path: Path) -> Iterator[tuple[Transport, str]]:
    with RestController().served() as url, Transport(url, Caller(ONCE)) as rest:
        yield rest, TOKEN


@pytest.mark.parametrize("served", [_real, _fake], ids=["real", "fake"])
@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (Ask(routes.GET_RUN, NO_RUN), ProblemCode.RUN_NOT_FOUND),
        (Ask(routes.GET_GATE, NO_RUN), ProblemCode.RUN_NOT_FOUND),
        (Ask(routes.CANCEL_RUN, NO_RUN), ProblemCode.RUN_NOT_FOUND),
        (Ask(routes.GET_JOB, {"job_id": "job_01J00000000000000000000000"}), ProblemCode.JOB_NOT_FOUND),
        (Ask(routes.GET_DEVICE, {"device_id": "gone"}), ProblemCode.DEVICE_NOT_FOUND),
        (Ask(routes.SUBMIT_RUN, body=NOWHERE), ProblemCode.SELECTOR_UNSATISFIABLE),
        (Ask(routes.LIST_RUNS, token=SecretStr("dyn_wrong")), ProblemCode.NOT_AUTHENTICATED),
    ],
    ids=lambda value: str(value.route) if isinstance(value, Ask) else str(value),
)
def test_real_and_fake_refuse_alike(tmp_path: Path, served: Any, ask: Ask[Any], code: ProblemCode) -> None:
    with served(tmp_path) as (rest, token):
        rest.authorise(SecretStr(token))
        with pytest.raises(errors.RefusedError) as refused:
            rest.ask(ask)
    kind = PROBLEMS[code]
    told = refused.value.problem
    assert (told.code, told.status, told.fault, told.retryable) == (
        code,
        kind.status,
        kind.fault,
        kind.retryable,
    )


def test_a_certificate_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.SettingError, match="DYNOFARM_CA_FILE") as refused:
        Transport("https://farm.test", Caller(ca_file=tmp_path / "no.pem"))
    assert refused.value.code == "bad-certificates"


def test_the_proxy_of_the_environment_is_never_asked_for_a_loopback_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with RestController().served() as url, Transport(url, Caller(ONCE)) as rest:
        assert rest.ask(Ask(routes.HEALTH)).status == "ok"
    with Transport("http://farm.test", Caller(ONCE)) as rest, pytest.raises(errors.UnavailableError):
        rest.ask(Ask(routes.HEALTH))
