"""Device agents as the controller sees them: each says hello, each of its devices waits in a long poll."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import httpx
from ulid import ULID

from contract.agent_api import ClaimRequest, DeviceReport, Hello, HostHealth, Lease
from contract.routes import CLAIM, HELLO
from contract.states import TargetKind
from contract.version import CONTRACT_VERSION
from controller.db.models import AgentRow, TokenKind
from controller.db.session import open_sessions, unit_of_work
from controller.db.tokens import TokenGrant, TokenRepository

DEVICES_PER_AGENT: Final = 20
HELLO_INTERVAL_S: Final = 30.0
CLAIM_WAIT_S: Final = 50.0
MODEL: Final = "tiny"
_ANSWER_LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Agent:
    """An enrolled device agent with its token."""

    name: str
    token: str
    devices: tuple[str, ...]


@dataclass(slots=True)
class Fleet:
    """All agents, and what their calls were answered so far."""

    url: str
    agents: list[Agent]
    answers: Counter[str] = field(default_factory=Counter)
    granted: "asyncio.Queue[tuple[float, Lease]]" = field(default_factory=asyncio.Queue)
    """Leases with the monotonic time at which they came."""

    async def wait_for_work(self, seconds_until_spread: float) -> None:
        """Every device claims for ever, the first claims spread over the given time; ends by cancel."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with (
            httpx.AsyncClient(base_url=self.url, limits=limits, timeout=_ANSWER_LIMIT_S) as client,
            asyncio.TaskGroup() as group,
        ):
            for agent in self.agents:
                await self._say_hello(client, agent)
                group.create_task(self._keep_saying_hello(client, agent))
            devices = [(agent, device) for agent in self.agents for device in agent.devices]
            for agent, device in devices:
                group.create_task(self._keep_claiming(client, agent, device))
                await asyncio.sleep(seconds_until_spread / len(devices))

    async def _keep_saying_hello(self, client: httpx.AsyncClient, agent: Agent) -> None:
        while True:
            await asyncio.sleep(HELLO_INTERVAL_S)
            await self._say_hello(client, agent)

    async def _say_hello(self, client: httpx.AsyncClient, agent: Agent) -> None:
        hello = Hello(
            agent_version="bench",
            sent_at=datetime.now(UTC),
            health=HostHealth(disk_free_bytes=1, open_files=1, resident_bytes=1, spool_backlog_events=0),
            devices=[_report(device) for device in agent.devices],
        )
        await self._post(client, agent, HELLO.template, hello.model_dump_json())

    async def _keep_claiming(self, client: httpx.AsyncClient, agent: Agent, device: str) -> None:
        while True:
            claim = ClaimRequest(claim_id=f"clm_{ULID()}", devices=[device], wait_s=CLAIM_WAIT_S)
            answer = await self._post(client, agent, CLAIM.template, claim.model_dump_json())
            if answer is not None and answer.status_code == 200:
                self.granted.put_nowait((time.monotonic(), Lease.model_validate_json(answer.content)))
            elif answer is None or answer.status_code != 204:
                await asyncio.sleep(1.0)

    async def _post(
        self, client: httpx.AsyncClient, agent: Agent, path: str, body: str
    ) -> httpx.Response | None:
        headers = {"Authorization": f"Bearer {agent.token}", "Content-Type": "application/json"}
        try:
            answer = await client.post(path, content=body, headers=headers)
        except httpx.TransportError as error:
            self.answers[f"{path} {type(error).__name__}"] += 1
            return None
        self.answers[f"{path} {answer.status_code}"] += 1
        return answer


def enrol(database_url: str, device_count: int) -> list[Agent]:
    """Agents with valid tokens, straight into the database; their hellos bring the devices."""
    sessions = open_sessions(database_url)
    now = datetime.now(UTC)
    agents = []
    with unit_of_work(sessions) as session:
        for first in range(0, device_count, DEVICES_PER_AGENT):
            agent_id, name = f"agt_{ULID()}", f"bench-{device_count}-{first}"
            session.add(
                AgentRow(
                    device_agent_id=agent_id,
                    name=name,
                    contract_version=CONTRACT_VERSION,
                    created_at=now,
                    last_seen_at=now,
                )
            )
            session.flush()
            token = TokenRepository(session).issue(
                TokenGrant(TokenKind.AGENT, name, device_agent_id=agent_id), now
            )
            last = min(first + DEVICES_PER_AGENT, device_count)
            devices = tuple(f"{name}-{number}" for number in range(first, last))
            agents.append(Agent(name, token, devices))
    sessions.close()
    return agents


def _report(device: str) -> DeviceReport:
    return DeviceReport(
        device_id=device,
        kind=TargetKind.HOST,
        generation=1,
        ready=True,
        device_model="bench",
        os_name="Linux",
        os_version="1",
        models=[MODEL],
    )
