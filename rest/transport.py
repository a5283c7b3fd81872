"""Calls to one controller: a route of the contract in, its answer out, a RestError for everything else."""

import asyncio
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import httpx
from pydantic import BaseModel, SecretStr

from contract.headers import IDEMPOTENCY_KEY_HEADER, SESSION_COOKIE
from contract.health import HealthQuery, is_proof
from contract.problems import PROBLEM_MEDIA_TYPE
from contract.routes import HEALTH, Route, Upload
from rest.address import Address, check_token
from rest.answers import MAX_ANSWER_BYTES, MAX_FILE_BYTES, HttpAnswer, answer_of
from rest.errors import (
    ControllerUnreachableError,
    NotOurFarmError,
    RestError,
    SettingError,
    UnexpectedAnswerError,
)
from rest.tries import Patience, Tries
from rest.trust import tls_context, trusting_nobody

Answer = TypeVar("Answer")
Network = httpx.AsyncBaseTransport
"""What carries requests; tests give another."""
Waits = Callable[[RestError, float], None]

_ACCEPT: Final = f"application/json, {PROBLEM_MEDIA_TYPE}"


@dataclass(frozen=True, slots=True)
class Caller:
    """How a role calls. on_wait is told of each failure that is waited out, and for how many seconds."""

    patience: Patience = field(default_factory=Patience)
    ca_file: Path | None = None
    max_connections: int = 16
    must_prove_token: bool = False
    """The controller must show that it knows the token before it is sent there: for a token of a home folder,
    on whose port anybody may listen when the farm is down."""
    on_wait: Waits = lambda error, wait_s: None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True)
class Ask(Generic[Answer]):
    """One question. names: the parameters of the path. timeout_s: for each try, instead of the caller's."""

    route: Route[Answer]
    names: Mapping[str, str] = field(default_factory=dict)
    body: BaseModel | bytes | None = None
    query: BaseModel | None = None
    key: str = ""
    """Idempotency key; for a route that takes one, "" has it made up, one for all tries."""
    token: SecretStr | None = None
    """Instead of the caller's own."""
    timeout_s: float | None = None


class AsyncTransport:
    """Asks one controller, within one event loop."""

    def __init__(self, url: str, caller: Caller | None = None, transport: Network | None = None) -> None:
        """SettingError for a bad address or certificate file. `transport` replaces the network in tests."""
        self.address = Address.of(url)
        self._caller = caller or Caller()
        self.patience = self._caller.patience
        self._token = SecretStr("")
        self._is_proven = True
        is_encrypted = self.address.is_encrypted and transport is None
        self._http = httpx.AsyncClient(
            headers={"Accept": _ACCEPT, "Accept-Encoding": "identity"},
            timeout=None,  # each try has a deadline as a whole, see _try
            verify=tls_context(self._caller.ca_file) if is_encrypted else trusting_nobody(),
            trust_env=transport is None and not self.address.is_loopback,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=self._caller.max_connections),
            transport=transport,
        )

    def authorise(self, token: SecretStr) -> None:
        """Show this token from now on; SettingError for what can be none."""
        check_token(token)
        self._token = token
        self._is_proven = not self._caller.must_prove_token or not token.get_secret_value()

    def show_session(self, cookie: str) -> None:
        """Show a browser's session instead of a token; with the origin, without which it may only read."""
        base = httpx.URL(self.address.url)
        self._http.headers["Cookie"] = f"{SESSION_COOKIE}={cookie}"
        self._http.headers["Origin"] = f"{base.scheme}://{base.netloc.decode()}"

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def call(
        self,
        route: Route[Answer],
        body: BaseModel | bytes | None = None,
        query: BaseModel | None = None,
        **names: str,
    ) -> Answer:
        """The route's answer; `names` are the parameters of its path."""
        return await self.ask(Ask(route, names, body, query))

    async def ask(self, ask: Ask[Answer]) -> Answer:
        """The answer, after as many tries as the caller's patience allows; else a RestError."""
        clock = asyncio.get_running_loop().time
        request = self._request(ask)
        tries = Tries(self.patience, ask.route.repeatable or ask.route.takes_key, clock())
        while True:
            try:
                if not self._is_proven and ask.token is None:
                    await self._prove()
                return answer_of(ask.route, self.address.url, await self._try(request, ask))
            except RestError as error:
                if isinstance(error, ControllerUnreachableError):
                    # Whoever listens there next has to prove itself again.
                    self._is_proven = self._is_proven and not self._caller.must_prove_token
                wait_s = tries.wait_s(error, clock())
                self._caller.on_wait(error, wait_s)
            await self._caller.sleep(wait_s)

    def _request(self, ask: Ask[Any]) -> httpx.Request:
        token = (self._token if ask.token is None else ask.token).get_secret_value()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if ask.route.takes_key:
            headers[IDEMPOTENCY_KEY_HEADER] = ask.key or secrets.token_urlsafe(24)
        if isinstance(ask.body, BaseModel):
            headers["Content-Type"] = "application/json"
        elif isinstance(ask.route.body, Upload):
            headers["Content-Type"] = ask.route.body.media_type
            headers |= {"Content-Encoding": ask.route.body.encoding} if ask.route.body.encoding else {}
        try:
            return self._http.build_request(
                ask.route.method,
                self.address.url + ask.route.path(**ask.names),
                params=ask.query.model_dump(mode="json", exclude_none=True) if ask.query else None,
                content=ask.body.model_dump_json() if isinstance(ask.body, BaseModel) else ask.body,
                headers=headers,
            )
        except ValueError as error:
            raise SettingError("bad-option", f"{ask.route}: {error}") from error
        except httpx.InvalidURL as error:
            raise SettingError("bad-address", f"{self.address} cannot be asked: {error}") from error

    async def _try(self, request: httpx.Request, ask: Ask[Any]) -> HttpAnswer:
        limit_s = self.patience.call_s if ask.timeout_s is None else ask.timeout_s
        max_bytes = MAX_FILE_BYTES if ask.route.answer is bytes else MAX_ANSWER_BYTES
        connect_s = min(self.patience.connect_s, limit_s)
        request.extensions["timeout"] = {"connect": connect_s, "pool": limit_s}
        try:
            async with asyncio.timeout(limit_s):
                return await self._exchange(request, max_bytes)
        except TimeoutError as error:
            raise self._unreachable(f"no answer within {limit_s:.3g} s") from error
        except (httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise self._unreachable(f"no connection within {connect_s:.3g} s", was_sent=False) from error
        except httpx.ConnectError as error:
            if isinstance(_root(error), ssl.SSLCertVerificationError):
                raise SettingError(
                    "certificate-not-trusted",
                    f"the certificate of {self.address} is not trusted: {_root(error)}",
                ) from error
            raise self._unreachable(str(error), was_sent=False) from error
        except httpx.DecodingError as error:
            raise UnexpectedAnswerError(f"{self.address} answered what cannot be read: {error}") from error
        except httpx.HTTPError as error:
            raise self._unreachable(str(error) or type(error).__name__) from error

    async def _exchange(self, request: httpx.Request, max_bytes: int) -> HttpAnswer:
        response = await self._http.send(request, stream=True)
        try:
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > max_bytes:
                    raise UnexpectedAnswerError(
                        f"{self.address} answered with more than {max_bytes >> 20} MiB"
                    )
            return HttpAnswer(response.status_code, dict(response.headers), bytes(content))
        finally:
            await response.aclose()

    async def _prove(self) -> None:
        """NotOurFarmError unless the controller shows that it knows the token; the token stays here."""
        challenge = secrets.token_urlsafe(24)
        asked = Ask(HEALTH, query=HealthQuery(challenge=challenge), token=SecretStr(""))
        got = await self._try(self._request(asked), asked)
        token = self._token.get_secret_value()
        try:
            health = answer_of(HEALTH, self.address.url, got)
        except UnexpectedAnswerError:
            health = None
        if health is None or not is_proof(health.proof, token, self.address.port, challenge):
            raise NotOurFarmError(
                f"what answers at {self.address} does not know this farm's token, so it was not sent there"
            )
        self._is_proven = True

    def _unreachable(self, why: str, *, was_sent: bool = True) -> ControllerUnreachableError:
        error = ControllerUnreachableError(f"no controller answers at {self.address}: {why}")
        error.was_sent = was_sent
        return error


def _root(error: BaseException) -> BaseException:
    cause = error.__cause__ or error.__context__
    return error if cause is None else _root(cause)


class Transport:
    """The same for a caller without an event loop of its own; not for several threads at once."""

    def __init__(self, url: str, caller: Caller | None = None, transport: Network | None = None) -> None:
        """As AsyncTransport."""
        self._runner = asyncio.Runner()
        self._transport = AsyncTransport(url, caller, transport)
        self.address = self._transport.address
        self.authorise = self._transport.authorise

    @property
    def patience(self) -> Patience:
        """That of the next call."""
        return self._transport.patience

    @patience.setter
    def patience(self, patience: Patience) -> None:
        self._transport.patience = patience

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._transport.close())
        self._runner.close()

    def ask(self, ask: Ask[Answer]) -> Answer:
        """As AsyncTransport.ask; Ctrl-C ends it as KeyboardInterrupt."""
        return self._runner.run(self._transport.ask(ask))
