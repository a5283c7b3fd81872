"""The routes that a device agent calls, each tried once: its loops know better when to try again.

Errors: UndecidedError (try again later), RefusedError and its kinds (the controller decided).
"""

from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, SecretStr

from contract import routes
from contract.agent_api import (
    ClaimRequest,
    EnrollAnswer,
    EnrollRequest,
    EventsAnswer,
    Hello,
    HelloAnswer,
    Lease,
    RenewAnswer,
    RenewRequest,
    ResultAnswer,
    ResultRequest,
)
from contract.artifacts import ArtifactRef, ArtifactUpload
from contract.ids import AttemptId, LeaseId, Name
from rest.transport import Ask, AsyncTransport, Caller, Network
from rest.tries import Patience

Answer = TypeVar("Answer")

_MAX_CONNECTIONS: Final = 512


class ControllerClient:
    """One agent's view of the controller. `authorise(token)` decides who speaks."""

    def __init__(
        self,
        controller_url: str,
        call_timeout_s: float,
        ca_file: Path | None = None,
        transport: Network | None = None,
    ) -> None:
        """call_timeout_s: deadline of each call from connecting to the last byte of the answer.

        SettingError for a bad address or certificate file. `transport` replaces the network in tests.
        """
        self._call_timeout_s = call_timeout_s
        patience = Patience(call_s=call_timeout_s, connect_s=call_timeout_s, give_up_after_s=0.0)
        caller = Caller(patience, ca_file, max_connections=_MAX_CONNECTIONS)
        self._rest = AsyncTransport(controller_url, caller, transport)

    def authorise(self, token: str) -> None:
        """Use this token from now on."""
        self._rest.authorise(SecretStr(token))

    async def close(self) -> None:
        """Close all connections."""
        await self._rest.close()

    async def enroll(self, enrollment_token: str, body: EnrollRequest) -> EnrollAnswer:
        """Exchange the one-time token for the agent's own."""
        return await self._rest.ask(Ask(routes.ENROLL, body=body, token=SecretStr(enrollment_token)))

    async def hello(self, body: Hello) -> HelloAnswer:
        """Report the full state."""
        return await self._rest.call(routes.HELLO, body)

    async def claim(self, body: ClaimRequest) -> Lease | None:
        """Ask for an attempt; None when there is none after body.wait_s."""
        return await self._ask(routes.CLAIM, {}, body, body.wait_s + self._call_timeout_s)

    async def renew(self, lease_id: LeaseId, body: RenewRequest, timeout_s: float) -> RenewAnswer:
        """Keep the lease. timeout_s: an answer after that is of no use."""
        limit_s = min(timeout_s, self._call_timeout_s)
        return await self._ask(routes.RENEW, {"lease_id": lease_id}, body, limit_s)

    async def upload(self, attempt_id: AttemptId, batch_gzip: bytes) -> EventsAnswer:
        """Send one batch: gzip of NDJSON, an EventBatchHeader line first."""
        return await self._rest.call(routes.POST_EVENTS, batch_gzip, attempt_id=attempt_id)

    async def put_artifact(
        self, attempt_id: AttemptId, name: Name, about: ArtifactUpload, content: bytes
    ) -> ArtifactRef:
        """Send one file of the attempt; idempotent."""
        return await self._rest.call(routes.PUT_ARTIFACT, content, about, attempt_id=attempt_id, name=name)

    async def finish(self, attempt_id: AttemptId, body: ResultRequest) -> ResultAnswer:
        """Send the result; idempotent."""
        return await self._rest.call(routes.PUT_RESULT, body, attempt_id=attempt_id)

    async def _ask(
        self, route: routes.Route[Answer], names: dict[str, str], body: BaseModel, timeout_s: float
    ) -> Answer:
        return await self._rest.ask(Ask(route, names, body, timeout_s=timeout_s))
