"""A controller on a SQLite file of its own: the real application, and an honest device agent beside it."""

import atexit
import gzip
import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from ulid import ULID

from contract import routes
from contract.agent_api import DeviceReport, EventBatchHeader, HostHealth, Lease
from contract.artifacts import ArtifactKind, ArtifactUpload
from contract.events import Event, Stream, event_line
from controller.api.context import ApiContext
from controller.app import create_app
from controller.db.migrate import upgrade_opened
from controller.db.models import TokenKind, TokenScope
from controller.db.session import open_sessions
from controller.db.tokens import TokenGrant, TokenRepository
from controller.settings import Settings

BASE_URL = "http://127.0.0.1"


@cache
def _migrated() -> Path:
    """A database file with every table, made by the migrations once for all tests of this process."""
    folder = Path(tempfile.mkdtemp(prefix="dynofarm-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "migrated.sqlite"
    sessions = open_sessions(f"sqlite:///{path}")
    upgrade_opened(sessions)
    with sessions.engine.connect() as connection:
        # Everything into the one file that is copied.
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    sessions.close()
    return path


@dataclass
class Farm:
    """The application and a client for each scope. Background threads run only inside its lifespan."""

    app: FastAPI
    tokens: dict[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, home: Path, **settings: Any) -> "Farm":
        """A migrated database in `home`, and a token for each scope; the dashboard has tests of its own."""
        chosen = Settings(**({"home": home, "dashboard": False} | settings))
        shutil.copyfile(_migrated(), home / "controller.sqlite")
        farm = cls(create_app(chosen))
        for scope in TokenScope:
            farm.tokens[scope.value] = farm.issue(TokenGrant(TokenKind.USER, scope.value, scope=scope))
        return farm

    @property
    def context(self) -> ApiContext:
        """What the routes work with."""
        context: ApiContext = self.app.state.context
        return context

    def issue(self, grant: TokenGrant) -> str:
        """The text of a new token."""
        with self.context.unit_of_work() as work:
            return TokenRepository(work.session).issue(grant, work.now)

    def client(self, token: str | None = None, **options: Any) -> httpx.AsyncClient:
        """An HTTP client with a bearer token, given as text or as the name of a scope."""
        headers = dict(options.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {self.tokens.get(token, token)}"
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=True)
        return httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=headers, **options)

    async def agent(self, name: str = "lab-1") -> "FakeAgent":
        """An enrolled device agent."""
        enrolment = self.issue(TokenGrant(TokenKind.ENROLMENT, "test"))
        async with self.client(enrolment) as client:
            answer = (await client.post("/device-agent/enroll", json={"agent_name": name})).json()
        return FakeAgent(self, answer["device_agent_id"], answer["token"])


@dataclass
class FakeAgent:
    """Speaks the agent surface over HTTP as the contract says, and no more."""

    farm: Farm
    device_agent_id: str
    token: str

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """One call with the agent's token."""
        async with self.farm.client(self.token) as client:
            return await client.post(path, json=body)

    def hello_body(self, *devices: DeviceReport) -> dict[str, Any]:
        """What a hello with these devices sends."""
        return {
            "agent_version": "1",
            "sent_at": datetime.now(UTC).isoformat(),
            "health": HostHealth(
                disk_free_bytes=1 << 40, open_files=1, resident_bytes=1, spool_backlog_events=0
            ).model_dump(),
            "devices": [device.model_dump(mode="json") for device in devices],
        }

    async def hello(self, *devices: DeviceReport) -> dict[str, Any]:
        """Report the devices, ready or not."""
        response = await self.post("/device-agent/hello", self.hello_body(*devices))
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def claim(self, *device_ids: str) -> Lease | None:
        """A lease if there is one now."""
        body = {"claim_id": f"clm_{ULID()}", "devices": list(device_ids), "wait_s": 0}
        response = await self.post("/device-agent/claims", body)
        if response.status_code == 204:
            return None
        assert response.status_code == 200, response.text
        return Lease.model_validate(response.json())

    async def renew(self, lease: Lease, phase: str, trials_done: int = 0) -> dict[str, Any]:
        """Keep the lease and report the phase."""
        body = {
            "fence": lease.fence,
            "phase": phase,
            "sent_at": datetime.now(UTC).isoformat(),
            "trials_done": trials_done,
        }
        response = await self.post(f"/device-agent/leases/{lease.lease_id}:renew", body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def upload(self, lease: Lease, stream: Stream, events: Sequence[Event]) -> None:
        """Send the events of one stream in one batch; nothing for none."""
        if not events:
            return
        header = EventBatchHeader(
            stream=stream,
            first_seq=events[0].seq,
            count=len(events),
            fence=lease.fence,
            sent_at=datetime.now(UTC),
        )
        lines = [header.model_dump_json().encode(), *(event_line(event) for event in events)]
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/x-ndjson"}
        async with self.farm.client(self.token, headers=headers) as client:
            body = gzip.compress(b"\n".join(lines) + b"\n")
            response = await client.post(f"/device-agent/attempts/{lease.attempt_id}/events", content=body)
        assert response.status_code == 200, response.text

    async def put_artifact(
        self, lease: Lease, name: str, content: bytes, kind: ArtifactKind = ArtifactKind.RUNTIME_LOG
    ) -> None:
        """Store a file of the attempt."""
        said = ArtifactUpload(fence=lease.fence, kind=kind, sha256=hashlib.sha256(content).hexdigest())
        path = routes.PUT_ARTIFACT.path(attempt_id=lease.attempt_id, name=name)
        async with self.farm.client(self.token) as client:
            response = await client.put(path, params=said.model_dump(mode="json"), content=content)
        assert response.status_code == 200, response.text

    async def finish(
        self, lease: Lease, last_seq: dict[str, int], outcome: str = "succeeded", reason: str | None = None
    ) -> None:
        """The last word on the attempt."""
        body = {"fence": lease.fence, "outcome": outcome, "reason": reason, "last_seq": last_seq}
        async with self.farm.client(self.token) as client:
            response = await client.put(f"/device-agent/attempts/{lease.attempt_id}/result", json=body)
        assert response.status_code == 200, response.text


def host_report(device_id: str = "host-1", **changed: Any) -> DeviceReport:
    """A host that is ready and has the model `tiny`."""
    fields: dict[str, Any] = {
        "device_id": device_id,
        "kind": "host",
        "generation": 1,
        "ready": True,
        "device_model": "testhost",
        "os_name": "linux",
        "os_version": "6.1",
        "models": ["tiny"],
    }
    return DeviceReport.model_validate(fields | changed)
