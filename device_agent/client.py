"""Calls to the controller: typed bodies in, typed answers out, a deadline on every call.

Each method tries once. Errors: ControllerUnreachableError (try again later), RefusedError and its kinds
(the controller decided), AnswerInvalidError (the answer breaks the contract).
"""

import asyncio
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

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
from device_agent.floor.errors import AnswerInvalidError, ControllerUnreachableError
from device_agent.refusals import error_of

_A = TypeVar("_A", bound=BaseModel)
_JSON = {"Content-Type": "application/json"}
_BATCH_HEADERS = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
_MAX_CONNECTIONS = 512


def open_http(controller_url: str, transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """The connection pool of one agent; no environment proxies, no redirects: a token goes to one place."""
    return httpx.AsyncClient(
        base_url=controller_url,
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        timeout=None,  # every call has a deadline of its own, see _send
        limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=32),
    )


class ControllerClient:
    """One agent's view of the controller. `authorise(token)` decides who speaks."""

    def __init__(self, http: httpx.AsyncClient, call_timeout_s: float) -> None:
        """call_timeout_s: deadline of each call from connecting to the last byte of the answer."""
        self._http = http
        self._call_timeout_s = call_timeout_s
        self._token = ""

    def authorise(self, token: str) -> None:
        """Use this token from now on."""
        self._token = token

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def enroll(self, enrollment_token: str, body: EnrollRequest) -> EnrollAnswer:
        """Exchange the one-time token for the agent's own."""
        request = self._request(routes.ENROLL, routes.ENROLL.path(), body, enrollment_token)
        return _parsed(await self._send(request, self._call_timeout_s), EnrollAnswer)

    async def hello(self, body: Hello) -> HelloAnswer:
        """Report the full state."""
        request = self._request(routes.HELLO, routes.HELLO.path(), body)
        return _parsed(await self._send(request, self._call_timeout_s), HelloAnswer)

    async def claim(self, body: ClaimRequest) -> Lease | None:
        """Ask for an attempt; None when there is none after body.wait_s."""
        request = self._request(routes.CLAIM, routes.CLAIM.path(), body)
        response = await self._send(request, body.wait_s + self._call_timeout_s)
        return None if response.status_code == httpx.codes.NO_CONTENT else _parsed(response, Lease)

    async def renew(self, lease_id: LeaseId, body: RenewRequest, timeout_s: float) -> RenewAnswer:
        """Keep the lease. timeout_s: an answer after that is of no use."""
        request = self._request(routes.RENEW, routes.RENEW.path(lease_id=lease_id), body)
        return _parsed(await self._send(request, min(timeout_s, self._call_timeout_s)), RenewAnswer)

    async def upload(self, attempt_id: AttemptId, batch_gzip: bytes) -> EventsAnswer:
        """Send one batch: gzip of NDJSON, an EventBatchHeader line first."""
        request = self._http.build_request(
            routes.POST_EVENTS.method,
            routes.POST_EVENTS.path(attempt_id=attempt_id),
            content=batch_gzip,
            headers={**_BATCH_HEADERS, "Authorization": f"Bearer {self._token}"},
        )
        return _parsed(await self._send(request, self._call_timeout_s), EventsAnswer)

    async def put_artifact(
        self, attempt_id: AttemptId, name: Name, about: ArtifactUpload, content: bytes
    ) -> ArtifactRef:
        """Send one file of the attempt; idempotent."""
        request = self._http.build_request(
            routes.PUT_ARTIFACT.method,
            routes.PUT_ARTIFACT.path(attempt_id=attempt_id, name=name),
            params=about.model_dump(mode="json"),
            content=content,
            headers={"Content-Type": "application/octet-stream", "Authorization": f"Bearer {self._token}"},
        )
        return _parsed(await self._send(request, self._call_timeout_s), ArtifactRef)

    async def finish(self, attempt_id: AttemptId, body: ResultRequest) -> ResultAnswer:
        """Send the result; idempotent."""
        request = self._request(routes.PUT_RESULT, routes.PUT_RESULT.path(attempt_id=attempt_id), body)
        return _parsed(await self._send(request, self._call_timeout_s), ResultAnswer)

    def _request(
        self, route: routes.Route[Any], path: str, body: BaseModel, token: str | None = None
    ) -> httpx.Request:
        headers = {**_JSON, "Authorization": f"Bearer {self._token if token is None else token}"}
        return self._http.build_request(route.method, path, content=body.model_dump_json(), headers=headers)

    async def _send(self, request: httpx.Request, timeout_s: float) -> httpx.Response:
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._http.send(request)
        except TimeoutError as error:
            raise ControllerUnreachableError(f"no answer within {timeout_s:.1f} s") from error
        except httpx.HTTPError as error:
            raise ControllerUnreachableError(f"{type(error).__name__}: {error}") from error
        if not response.is_success:
            raise error_of(response)
        return response


def _parsed(response: httpx.Response, model: type[_A]) -> _A:
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AnswerInvalidError(f"{model.__name__}: {where}: {first['msg']}") from error
