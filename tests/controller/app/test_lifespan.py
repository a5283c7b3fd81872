"""The application with its background threads: runs complete by themselves, and without a broker too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from contract.rest import GateView
from contract.states import GateExit, RunState
from controller.db.models import RunRow
from tests.fakes.farm import Farm
from tests.fakes.session import Lab

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0
NO_BROKER = "redis://127.0.0.1:1/0"


@asynccontextmanager
async def _running(home: Path, **settings: Any) -> AsyncIterator[Lab]:
    farm = Farm.at(home, **settings)
    async with farm.app.router.lifespan_context(farm.app):
        yield await Lab.of(farm)


def _state(lab: Lab, run_id: str) -> RunState:
    with lab.farm.context.view() as work:
        return work.session.get_one(RunRow, run_id).state


async def test_a_run_is_completed_although_nobody_asks_for_it(tmp_path: Path) -> None:
    async with _running(tmp_path) as lab:
        run = await lab.submit()
        await lab.carry_out(await lab.claim())
        with anyio.fail_after(DEADLINE_S):
            while _state(lab, run.run_id) is not RunState.COMPLETED:
                await anyio.sleep(0.05)


async def test_with_the_broker_away_the_farm_accepts_leases_ingests_and_judges(tmp_path: Path) -> None:
    async with _running(tmp_path, broker_url=NO_BROKER) as lab:
        run = await lab.submit()
        await lab.carry_out(await lab.claim())
        gate = GateView.model_validate(await lab.get(f"/v1/runs/{run.run_id}/gate"))
        assert gate.exit_code is GateExit.PASS
        assert _state(lab, run.run_id) is RunState.COMPLETED
        async with lab.farm.client("viewer") as client:
            text = (await client.get("/metrics")).text
        waiting = next(line for line in text.splitlines() if line.startswith("dynofarm_outbox_unpublished "))
        assert float(waiting.split()[1]) > 0


async def test_a_waiting_claim_is_woken_by_a_submission(tmp_path: Path) -> None:
    # Without the signal this claim would look again only when it has waited in vain.
    async with _running(tmp_path, claim_look_s=60.0) as lab:
        got: list[str] = []

        async def wait_for_work() -> None:
            body = {"claim_id": "clm_01J00000000000000000000000", "devices": ["host-1"], "wait_s": 25}
            response = await lab.agent.post("/device-agent/claims", body)
            got.append(response.json()["attempt_id"] if response.status_code == 200 else "")

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(wait_for_work)
                await anyio.sleep(0.3)
                await lab.submit()
        assert got[0].startswith("att_")


async def test_stopping_answers_the_claims_that_wait(tmp_path: Path) -> None:
    async with _running(tmp_path) as lab:
        got: list[int] = []

        async def wait_for_work() -> None:
            body = {"claim_id": "clm_01J00000000000000000000000", "devices": ["host-1"], "wait_s": 25}
            got.append((await lab.agent.post("/device-agent/claims", body)).status_code)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(wait_for_work)
                await anyio.sleep(0.3)
                lab.farm.context.waiting_claims.close()
        assert got == [204]
