"""Who asks, and whether they may. Deny by default: the middleware lets nobody pass whom it does not know.

A request shows a bearer token or, from a page of this host, the session cookie that the login form gave.
The kind of token that a path takes is decided here by its prefix; how much a user's token allows is decided
by the route, with `requires(scope)`. A token that was revoked is refused at the next request: nothing is
cached.
"""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlsplit

from fastapi import Request
from fastapi.responses import RedirectResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from contract.headers import SESSION_COOKIE
from contract.routes import (
    DASHBOARD_PREFIX,
    DEVICE_AGENT_PREFIX,
    ENROLL,
    HEALTH,
    LOGIN_PATH,
    LOGOUT_PATH,
    READY,
)
from controller.api.context import ApiContext
from controller.api.problems import ProblemResponse, problem_of, trace_id_of
from controller.api.sessions import SessionSigner
from controller.db.models import TokenKind, TokenRow, TokenScope
from controller.db.session import read_only
from controller.db.tokens import SessionRepository, TokenRepository, token_digest, use_is_stale
from controller.errors import FarmError, ForbiddenError, NotAuthenticatedError

OPEN_PATHS: Final = frozenset({HEALTH.template, READY.template, LOGIN_PATH, LOGOUT_PATH})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SCOPE_ORDER: Final = (TokenScope.VIEWER, TokenScope.SUBMITTER, TokenScope.ADMIN)
# Close code of a refused websocket: policy violation.
_POLICY_VIOLATION: Final = 1008


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever a token belongs to: `name` for the audit, `device_agent_id` where it is a device agent."""

    name: str
    kind: TokenKind
    scope: TokenScope | None
    device_agent_id: str | None
    token_sha256: str

    def allows(self, scope: TokenScope) -> bool:
        """Whether this user's token includes `scope`; nobody else's includes any."""
        return self.scope is not None and _SCOPE_ORDER.index(self.scope) >= _SCOPE_ORDER.index(scope)


@dataclass(frozen=True, slots=True)
class AgentPrincipal:
    """A device agent that showed its own token."""

    device_agent_id: str


def principal_of(request: Request) -> Principal:
    """Who sent this request; NotAuthenticatedError where the middleware let it pass without."""
    principal = getattr(request.state, "principal", None)
    if not isinstance(principal, Principal):
        raise NotAuthenticatedError
    return principal


def requires(scope: TokenScope) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency that gives the principal, or raises ForbiddenError when the token allows less."""

    async def check(request: Request) -> Principal:
        principal = principal_of(request)
        if not principal.allows(scope):
            raise ForbiddenError(
                f"this needs a token with the scope {scope}; yours has {principal.scope or 'none'}"
            )
        return principal

    return check


async def require_agent(request: Request) -> AgentPrincipal:
    """The device agent behind the request; ForbiddenError for any other token."""
    principal = principal_of(request)
    if principal.kind is not TokenKind.AGENT or principal.device_agent_id is None:
        raise ForbiddenError("this is for device agents: send the token that the enrolment gave")
    return AgentPrincipal(principal.device_agent_id)


def kinds_for(path: str) -> frozenset[TokenKind]:
    """Which kind of token a path takes."""
    if ENROLL.matches(path):
        return frozenset({TokenKind.ENROLMENT})
    if path.startswith(DEVICE_AGENT_PREFIX):
        return frozenset({TokenKind.AGENT})
    return frozenset({TokenKind.USER})


class AuthenticationMiddleware:
    """Finds the principal before any route runs; without one, only OPEN_PATHS are answered."""

    def __init__(self, app: ASGIApp, context: ApiContext, signer: SessionSigner) -> None:
        """`signer` checks the cookies that the login form gave."""
        self._app = app
        self._context = context
        self._signer = signer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on with `state.principal` set, or answer 401, 403 or a redirect to the login form."""
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        try:
            principal = await run_in_threadpool(self._authenticate, connection)
        except FarmError as error:
            await _refuse(error, connection, receive, send)
            return
        connection.state.principal = principal
        await self._app(scope, receive, send)

    def _authenticate(self, connection: HTTPConnection) -> Principal:
        """NotAuthenticatedError for no or a bad token, ForbiddenError for one of another kind."""
        digest, cookie = self._shown(connection)
        if digest is None:
            raise NotAuthenticatedError
        with read_only(self._context.sessions) as session:
            row = TokenRepository(session).find_digest(digest, self._context.now())
            if row is None or (cookie and SessionRepository(session).is_ended(cookie)):
                raise NotAuthenticatedError
        self._note_use(row)
        principal = _principal(row)
        kinds = kinds_for(connection.scope["path"])
        if principal.kind not in kinds:
            wanted = " or ".join(sorted(kinds))
            raise ForbiddenError(f"this needs a token of the kind {wanted}, yours is of the kind {row.kind}")
        return principal

    def _note_use(self, row: TokenRow) -> None:
        """At most one write a minute and token. A database that takes none must not keep anybody out."""
        if use_is_stale(row, self._context.now()):
            with contextlib.suppress(FarmError, SQLAlchemyError), self._context.unit_of_work() as work:
                TokenRepository(work.session).note_use(row, work.now)

    def _shown(self, connection: HTTPConnection) -> tuple[str | None, str]:
        """SHA-256 of the token that the request shows, None for none; and the cookie, if it was that."""
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme:
            return (token_digest(token.strip()) if scheme.lower() == "bearer" else None), ""
        cookie = connection.cookies.get(SESSION_COOKIE)
        if cookie is None or not _cookie_is_enough(connection, self._context.settings.public_netloc):
            return None, ""
        return self._signer.token_of(cookie, self._context.now()), cookie


def _principal(row: TokenRow) -> Principal:
    return Principal(
        name=row.name,
        kind=row.kind,
        scope=row.scope,
        device_agent_id=row.device_agent_id,
        token_sha256=row.token_sha256,
    )


def _cookie_is_enough(connection: HTTPConnection, public_netloc: str) -> bool:
    """A cookie travels by itself: what may change something must also come from a page of this host."""
    if connection.scope["type"] == "http" and connection.scope["method"] in _SAFE_METHODS:
        return True
    return is_same_origin(connection, public_netloc)


def is_same_origin(connection: HTTPConnection, public_netloc: str) -> bool:
    """Whether the Origin header names the host that was asked, or the one that people know; False without it.

    A proxy may rewrite the Host header: then only the public URL says what the browser asked.
    """
    try:
        origin = urlsplit(connection.headers.get("origin", "")).netloc
    except ValueError:
        return False
    return bool(origin) and origin in (connection.headers.get("host"), public_netloc)


async def _refuse(error: FarmError, connection: HTTPConnection, receive: Receive, send: Send) -> None:
    if connection.scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": "not authenticated"})
        return
    await _refusal(error, Request(connection.scope))(connection.scope, receive, send)


def _refusal(error: FarmError, request: Request) -> Response:
    """A person's browser on its way to the dashboard is shown the form, everybody else a problem."""
    wants_page = request.method == "GET" and request.url.path.startswith(DASHBOARD_PREFIX)
    may_log_in = isinstance(error, NotAuthenticatedError | ForbiddenError)
    if may_log_in and wants_page and "text/html" in request.headers.get("accept", ""):
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{LOGIN_PATH}?next={quote(target, safe='')}", HTTPStatus.SEE_OTHER)
    return ProblemResponse(problem_of(error, request.url.path, trace_id_of(request)))
