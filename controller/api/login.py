"""The login form: a person pastes a token and gets a session for reading with a browser."""

import base64
import hashlib
from http import HTTPStatus
from importlib import resources
from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from contract.administration import AuditAction, TokenKind
from contract.headers import SESSION_COOKIE
from contract.routes import DASHBOARD_PREFIX, LOGIN_PATH, LOGOUT_PATH
from controller.api.auth import is_same_origin
from controller.api.context import ApiContext, context_of
from controller.api.sessions import SESSION_DURATION, SessionSigner
from controller.db.audit import Act, AuditRepository
from controller.db.models import TokenRow
from controller.db.tokens import SessionRepository, TokenRepository, token_id
from controller.db.unit_of_work import UnitOfWork

MAX_FORM_BYTES: Final = 8192
_PAGE: Final = resources.files("controller.api").joinpath("login.html").read_text(encoding="utf-8")
_STYLE: Final = _PAGE.partition("<style>")[2].partition("</style>")[0]
_STYLE_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_REFUSED: Final = "This token is not known, has expired or was revoked; use the token of a person."

router = APIRouter(include_in_schema=False)


@router.get(LOGIN_PATH)
def login_form() -> HTMLResponse:
    """The form; where to go afterwards stays in the address and is read when the form is sent."""
    return _page("")


@router.post(LOGIN_PATH)
async def log_in(request: Request) -> Response:
    """A session cookie and a redirect, or the form again with 401."""
    context = await context_of(request)
    if request.headers.get("origin") and not is_same_origin(request, context.settings.public_netloc):
        return _page("The form was sent from another site.", HTTPStatus.FORBIDDEN)
    token = _form_field(await request.body(), "token")
    digest = await run_in_threadpool(_good_token, context, token)
    if digest is None:
        return _page(_REFUSED, HTTPStatus.UNAUTHORIZED)
    signer: SessionSigner = request.app.state.signer
    response = RedirectResponse(local_target(request.query_params.get("next", "")), HTTPStatus.SEE_OTHER)
    response.set_cookie(
        SESSION_COOKIE,
        signer.cookie_for(digest, context.now()),
        max_age=int(SESSION_DURATION.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=context.settings.session_needs_https,
    )
    return response


@router.post(LOGOUT_PATH)
async def log_out(request: Request) -> Response:
    """End the session here, whoever has a copy of its cookie, and go back to the form."""
    context = await context_of(request)
    if not is_same_origin(request, context.settings.public_netloc):
        return _page("The form was sent from another site.", HTTPStatus.FORBIDDEN)
    cookie = request.cookies.get(SESSION_COOKIE, "")
    await run_in_threadpool(_end_session, context, request.app.state.signer, cookie)
    response = RedirectResponse(LOGIN_PATH, HTTPStatus.SEE_OTHER)
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return response


def local_target(asked: str) -> str:
    """The page to go to: of the dashboard and of this host, whatever the address said."""
    is_ours = asked == DASHBOARD_PREFIX or asked.startswith((f"{DASHBOARD_PREFIX}/", f"{DASHBOARD_PREFIX}?"))
    # A backslash or a control character would let some browsers leave the host.
    is_plain = asked.isprintable() and "\\" not in asked
    return asked if is_ours and is_plain else DASHBOARD_PREFIX + "/"


def _form_field(body: bytes, name: str) -> str:
    """A field of an urlencoded form; empty for a form that is too long, broken or without it."""
    if len(body) > MAX_FORM_BYTES:
        return ""
    fields = parse_qs(body.decode("utf-8", errors="replace"), max_num_fields=None)
    return fields.get(name, [""])[0].strip()


def _good_token(context: ApiContext, token: str) -> str | None:
    """The digest of a user's token that is good now."""
    with context.unit_of_work() as work:
        row = TokenRepository(work.session).find(token, work.now)
        if row is None or row.kind is not TokenKind.USER:
            return None
        _record(work, AuditAction.LOG_IN, row)
        return row.token_sha256


def _end_session(context: ApiContext, signer: SessionSigner, cookie: str) -> None:
    """A cookie that is not a session, or one that has ended already, changes nothing."""
    digest = signer.token_of(cookie, context.now())
    if digest is None:
        return
    with context.unit_of_work() as work:
        row = TokenRepository(work.session).find_digest(digest, work.now)
        if row is not None and not SessionRepository(work.session).is_ended(cookie):
            SessionRepository(work.session).end(cookie, work.now + SESSION_DURATION)
            _record(work, AuditAction.LOG_OUT, row)


def _record(work: UnitOfWork, action: AuditAction, row: TokenRow) -> None:
    act = Act(row.name, action, row.name, token_id(row.token_sha256))
    AuditRepository(work.session).record(act, work.now)


def _page(message: str, status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    """`message` is one of ours and holds nothing that was sent."""
    page = _PAGE.replace("<!-- message -->", message)
    return HTMLResponse(page, status, headers={"Content-Security-Policy": _POLICY})
