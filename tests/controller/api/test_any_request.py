"""What is sent to a route of the OpenAPI document, allowed there or not, never fails the controller."""

import shutil
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode

from contract.agent_api import MAX_CLAIM_WAIT_S
from contract.routes import CLAIM
from controller.app import create_app
from controller.settings import Settings
from tests.fakes.farm import BASE_URL, Farm, host_report

REQUESTS_PER_ROUTE = 10
TIMEOUT_S = 60


def _operations() -> dict[str, Any]:
    """Every route of the OpenAPI document, by method and path."""
    home = Path(tempfile.mkdtemp(prefix="dynofarm-openapi-"))
    app = create_app(Settings(home=home, dashboard=False))
    try:
        document = app.openapi()
    finally:
        app.state.context.sessions.close()
        shutil.rmtree(home, ignore_errors=True)
    found = (result.ok() for result in schemathesis.openapi.from_dict(document).get_all_operations())
    return {operation.label: operation for operation in found}


OPERATIONS = _operations()


def _requests(label: str) -> st.SearchStrategy[Case]:
    """Requests that the document allows, and such as it does not."""
    operation = OPERATIONS[label]
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    return st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))


async def _send(farm: Farm, token: str | None, case: Case) -> int:
    """The status of the answer. A claim does not wait for work, which would only take time."""
    waits = isinstance(case.body, dict) and isinstance(case.body.get("wait_s", MAX_CLAIM_WAIT_S), int | float)
    if waits and case.path == CLAIM.template:
        case.body["wait_s"] = 0
    sent = requests.Request(**case.as_transport_kwargs(base_url=BASE_URL)).prepare()
    headers = {name: value for name, value in sent.headers.items() if name.lower() != "authorization"}
    async with farm.client(token) as client:
        with anyio.fail_after(TIMEOUT_S):
            answer = await client.request(sent.method, sent.url, headers=headers, content=sent.body)
    return answer.status_code


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_no_request_fails_the_controller(farm: Farm, label: str) -> None:
    agent = anyio.run(farm.agent)
    anyio.run(agent.hello, host_report())

    @settings(
        max_examples=REQUESTS_PER_ROUTE,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(_requests(label))
    def check(case: Case) -> None:
        for token in ("admin", agent.token, None):
            assert anyio.run(_send, farm, token, case) < HTTPStatus.INTERNAL_SERVER_ERROR

    check()
