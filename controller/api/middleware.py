"""What surrounds every request: an id, a log line, a count, security headers, a bound on the body.

Plain ASGI: nothing here buffers a response, so long polls and streams pass through.
"""

import re
import time
import uuid
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import structlog
from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contract import routes
from contract.headers import REQUEST_ID_HEADER
from controller.api.metrics import ServiceMetrics
from controller.api.problems import ProblemResponse, internal_problem, problem_of
from controller.errors import HostRefusedError, PayloadTooLargeError

_TRACE_ID = re.compile(r"^[A-Za-z0-9_.-]{8,64}$")
# The dashboard brings scripts and styles of its own, from this host only; everything else is data.
_DASHBOARD_POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; frame-ancestors 'none'; base-uri 'self'; "
    "form-action 'self'"
)
_DATA_POLICY: Final = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

_HOST_ALLOWED: Final = "host_allowed"
# Asked for by machines, again and again.
_QUIET: Final = frozenset({routes.HEALTH.template, routes.READY.template, routes.SERVICE_METRICS.template})

_log = structlog.get_logger(__name__)


class RequestMiddleware:
    """Outermost: gives the request its id, logs and counts it, and turns what nobody caught into a 500."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        """`metrics` counts requests by route, never by address: an id in it would make a series each."""
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on with `state.trace_id` set; the caller's X-Request-Id is kept where it is a plain word."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        trace_id = given if _TRACE_ID.match(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["trace_id"] = trace_id
        structlog.contextvars.bind_contextvars(trace_id=trace_id)
        answer = _Answer(send, scope["path"], trace_id)
        started_s = time.perf_counter()
        try:
            await self._app(scope, receive, answer.send)
        except Exception:
            _log.exception("request_crashed", method=scope["method"], path=scope["path"])
            if answer.status is not None:
                raise
            problem = internal_problem(Request(scope))
            await ProblemResponse(problem)(scope, receive, answer.send)
        finally:
            self._finish(scope, answer.status, time.perf_counter() - started_s)
            structlog.contextvars.unbind_contextvars("trace_id")

    def _finish(self, scope: Scope, status: int | None, duration_s: float) -> None:
        route = route_of(scope)
        self._metrics.observe_request(scope["method"], route, status or 0, duration_s)
        # A device that found no work asks again at once, all day long.
        idle = status == HTTPStatus.NO_CONTENT and route == routes.CLAIM.template
        level = "debug" if idle or route in _QUIET else "info"
        getattr(_log, level)(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            duration_ms=round(duration_s * 1000, 1),
        )


class _Answer:
    """Sends on, with the headers that every answer has; remembers the status."""

    def __init__(self, send: Send, path: str, trace_id: str) -> None:
        self._send = send
        self._path = path
        self._trace_id = trace_id
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            headers = MutableHeaders(scope=message)
            headers[REQUEST_ID_HEADER] = self._trace_id
            headers["X-Content-Type-Options"] = "nosniff"
            # With no-referrer a browser sends `Origin: null` with our own login form, which is then refused.
            headers["Referrer-Policy"] = "same-origin"
            headers.setdefault("X-Frame-Options", "DENY")
            headers.setdefault("Cache-Control", "no-store")
            is_page = self._path.startswith(routes.DASHBOARD_PREFIX)
            headers.setdefault("Content-Security-Policy", _DASHBOARD_POLICY if is_page else _DATA_POLICY)
        await self._send(message)


def route_of(scope: Scope) -> str:
    """The route's template such as `/v1/runs/{run_id}`, known once it was found; else "other"."""
    route = scope.get("route")
    if route is not None:
        return str(route.path)
    return routes.DASHBOARD_PREFIX if scope["path"].startswith(routes.DASHBOARD_PREFIX) else "other"


class HostMiddleware:
    """Refuses a Host header that is not ours: a page elsewhere cannot rebind its name to us."""

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str]) -> None:
        """`allowed_hosts` in the form of starlette's TrustedHostMiddleware, which decides."""
        self._app = app
        self._trusted = TrustedHostMiddleware(self._allow, allowed_hosts, www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 400 with what to do; starlette's own refusal would not be a problem document."""
        if scope["type"] != "http":
            await self._trusted(scope, receive, send)
            return
        state = scope.setdefault("state", {})

        async def send_allowed(message: Message) -> None:
            if state.get(_HOST_ALLOWED):
                await send(message)

        await self._trusted(scope, receive, send_allowed)
        if not state.get(_HOST_ALLOWED):
            problem = problem_of(HostRefusedError(), scope["path"], state.get("trace_id", ""))
            await ProblemResponse(problem)(scope, receive, send)

    async def _allow(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})[_HOST_ALLOWED] = True
        await self._app(scope, receive, send)


class BodyLimitMiddleware:
    """Refuses a body above its limit: by its declared length at once, else as soon as it has passed it."""

    def __init__(self, app: ASGIApp, max_body_bytes: int, max_artifact_bytes: int) -> None:
        """`max_artifact_bytes` holds for uploads of artifacts, `max_body_bytes` for everything else."""
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._max_artifact_bytes = max_artifact_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, with a `receive` that counts."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        artifact = routes.PUT_ARTIFACT.matches(scope["path"])
        limit_bytes = self._max_artifact_bytes if artifact else self._max_body_bytes
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdigit() and int(declared) > limit_bytes:
            trace_id = scope.get("state", {}).get("trace_id", "")
            problem = problem_of(PayloadTooLargeError(limit_bytes), scope["path"], trace_id)
            await ProblemResponse(problem)(scope, receive, send)
            return
        await self._app(scope, _counting(receive, limit_bytes), send)


def _counting(receive: Receive, limit_bytes: int) -> Receive:
    seen_bytes = 0

    async def counted() -> Message:
        nonlocal seen_bytes
        message = await receive()
        seen_bytes += len(message.get("body", b""))
        if seen_bytes > limit_bytes:
            # FastAPI lets this one pass; any other error while it reads becomes a 400.
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return message

    return counted
