"""One HTTP connection to the controller: deadlines, retry with back-off, answers as contract types."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Final, Generic, Self, TypeVar, cast
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError

from client.errors import ClientError, ControllerUnreachableError, UnexpectedAnswerError, UsageError
from client.problem_errors import error_of

Answer = TypeVar("Answer")

LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_RETRIED: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call may take and for how long a failed one is tried again."""

    call_s: float = 30.0
    give_up_after_s: float = 3.0
    first_wait_s: float = 0.1
    longest_wait_s: float = 2.0

    def waits_s(self, chance: random.Random) -> Iterator[float]:
        """Doubling waits, each between half and all of its step, so that clients do not come in step."""
        step_s = self.first_wait_s
        while True:
            yield step_s * chance.uniform(0.5, 1.0)
            step_s = min(2 * step_s, self.longest_wait_s)


@dataclass(frozen=True, slots=True)
class Ask(Generic[Answer]):
    """One question to the controller. idempotent: asking it twice has the effect of asking it once."""

    method: str
    path: str
    answer: type[Answer]
    query: Mapping[str, str | int | bool] = field(default_factory=dict)
    body: BaseModel | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotent: bool = True


class Connection:
    """Asks one controller; not for several threads at once."""

    def __init__(
        self,
        url: str,
        token: SecretStr,
        patience: Patience | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """UsageError for anything but http://HOST[:PORT] or https://HOST[:PORT], and for what is no token."""
        self.url = checked_url(url)
        _check_token(token)
        self._patience = patience or Patience()
        self._chance = random.Random()
        self._sleep: Callable[[float], None] = time.sleep
        headers = {"Accept": "application/json, application/problem+json"}
        if token.get_secret_value():
            headers["Authorization"] = f"Bearer {token.get_secret_value()}"
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(self._patience.call_s, connect=min(5.0, self._patience.call_s)),
            transport=transport,
            # A proxy from the environment cannot reach our loopback.
            trust_env=not is_loopback(self.url),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def ask(self, ask: Ask[Answer]) -> Answer:
        """The answer; a ClientError when there is none after all tries."""
        deadline = time.monotonic() + self._patience.give_up_after_s
        for wait_s in self._patience.waits_s(self._chance):
            try:
                response = self._http.request(
                    ask.method,
                    ask.path,
                    params=dict(ask.query),
                    content=ask.body.model_dump_json() if ask.body is not None else None,
                    headers={**_content_type(ask.body), **ask.headers},
                )
            except httpx.TransportError as error:
                # Without a connection nothing was sent, so even a call with effects may be tried again.
                failure: ClientError = self._unreachable(error)
                may_retry = ask.idempotent or isinstance(error, httpx.ConnectError)
            else:
                if response.is_success:
                    return _parsed(ask, response)
                failure = error_of(response)
                may_retry = ask.idempotent and response.status_code in _RETRIED
                wait_s = max(wait_s, _retry_after_s(response))
            if not may_retry or time.monotonic() + wait_s > deadline:
                raise failure
            self._sleep(wait_s)
        raise AssertionError("the waits never end")

    def _unreachable(self, error: httpx.TransportError) -> ControllerUnreachableError:
        what = "no answer in time" if isinstance(error, httpx.TimeoutException) else str(error)
        return ControllerUnreachableError(
            "controller-unreachable",
            f"no controller answers at {self.url}: {what or type(error).__name__}",
            "start one with `dynofarm up`, or give its address with --controller or DYNOFARM_CONTROLLER",
        )


def checked_url(url: str) -> str:
    """The address without a slash at its end; UsageError when it is no http(s) address of a host."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.username or parts.query or parts.fragment:
        raise UsageError(
            "bad-address",
            f"{url!r} is not the address of a controller",
            "give --controller as http://HOST:PORT or https://HOST",
        )
    return url.rstrip("/")


def _check_token(token: SecretStr) -> None:
    text = token.get_secret_value()
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise UsageError(
            "bad-token",
            "the token has characters that no token has",
            "copy it again into DYNOFARM_TOKEN, without quotes, blanks or line ends",
        )


def is_loopback(url: str) -> bool:
    """Whether the address is this machine's own."""
    return urlsplit(url).hostname in LOOPBACK_HOSTS


def _content_type(body: BaseModel | None) -> dict[str, str]:
    return {} if body is None else {"Content-Type": "application/json"}


def _retry_after_s(response: httpx.Response) -> float:
    """Seconds that the server asks for; 0 when it does not say, or says a date."""
    try:
        return max(0.0, float(response.headers.get("Retry-After", "0")))
    except ValueError:
        return 0.0


def _parsed(ask: Ask[Answer], response: httpx.Response) -> Answer:
    if ask.answer is bytes:
        return cast("Answer", response.content)
    try:
        return TypeAdapter(ask.answer).validate_json(response.content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field_name = ".".join(str(part) for part in first["loc"])
        raise UnexpectedAnswerError(
            "unexpected-answer",
            f"{ask.method} {ask.path} gave no {ask.answer.__name__}: {field_name}: {first['msg']}",
            "install the same dynofarm version here and on the controller",
        ) from error
