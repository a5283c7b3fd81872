"""Tokens over HTTP: made, listed by their names and never by their texts, revoked."""

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from contract import routes
from contract.administration import (
    AuditAction,
    EnrollmentTokenRequest,
    NewToken,
    TokenId,
    TokenKind,
    TokenPage,
    TokenView,
    UserTokenRequest,
)
from contract.queries import TokensQuery
from controller.api.devices import Admin
from controller.api.routing import serves
from controller.api.runs import Context
from controller.db.audit import Act, AuditRepository
from controller.db.models import TokenRow
from controller.db.tokens import TokenGrant, TokenRepository, token_digest, token_id
from controller.db.unit_of_work import UnitOfWork

router = APIRouter(tags=["tokens"])


@serves(router, routes.CREATE_ENROLLMENT_TOKEN)
def create_enrollment_token(
    context: Context, principal: Admin, body: EnrollmentTokenRequest | None = None
) -> NewToken:
    """A token with which one device agent may enrol, once, within the hour. It is shown here only."""
    asked = body or EnrollmentTokenRequest()
    with context.unit_of_work() as work:
        expires_at = work.now + timedelta(seconds=asked.valid_s)
        grant = TokenGrant(TokenKind.ENROLMENT, asked.name, expires_at=expires_at)
        return _issue(work, grant, principal.name, AuditAction.ENROLMENT_TOKEN_CREATED)


@serves(router, routes.CREATE_TOKEN)
def create_token(body: UserTokenRequest, context: Context, principal: Admin) -> NewToken:
    """A token for a person or for a program. It is shown here only."""
    with context.unit_of_work() as work:
        expires_at = None if body.valid_s is None else work.now + timedelta(seconds=body.valid_s)
        grant = TokenGrant(TokenKind.USER, body.name, scope=body.scope, expires_at=expires_at)
        return _issue(work, grant, principal.name, AuditAction.TOKEN_CREATED)


@serves(router, routes.LIST_TOKENS)
def list_tokens(query: Annotated[TokensQuery, Query()], context: Context, _: Admin) -> TokenPage:
    """Tokens, newest first; those that are good now unless all are asked for."""
    with context.view() as work:
        rows = TokenRepository(work.session).page(query, work.now)
        views = [_view(row) for row in rows[: query.limit]]
    return TokenPage(tokens=views, next_page_token=views[-1].token_id if len(rows) > query.limit else None)


@serves(router, routes.REVOKE_TOKEN)
def revoke_token(token_id: TokenId, context: Context, principal: Admin) -> TokenView:
    """It is refused from the next request on, as is every session that began with it. Twice is allowed."""
    with context.unit_of_work() as work:
        row = TokenRepository(work.session).get_by_id(token_id)
        if row.revoked_at is None:
            row.revoked_at = work.now
            _record(work, principal.name, AuditAction.TOKEN_REVOKED, row)
        return _view(row)


def _issue(work: UnitOfWork, grant: TokenGrant, actor: str, action: AuditAction) -> NewToken:
    text = TokenRepository(work.session).issue(grant, work.now)
    row = work.session.get_one(TokenRow, token_digest(text))
    _record(work, actor, action, row)
    return NewToken(token_id=token_id(row.token_sha256), token=text, expires_at=row.expires_at)


def _record(work: UnitOfWork, actor: str, action: AuditAction, row: TokenRow) -> None:
    detail = f"{token_id(row.token_sha256)}, {row.scope or row.kind}, {_end(row.expires_at)}"
    AuditRepository(work.session).record(Act(actor, action, row.name, detail), work.now)


def _end(expires_at: datetime | None) -> str:
    return f"until {expires_at.isoformat(timespec='seconds')}" if expires_at else "without an end"


def _view(row: TokenRow) -> TokenView:
    return TokenView(
        token_id=token_id(row.token_sha256),
        kind=row.kind,
        name=row.name,
        scope=row.scope,
        device_agent_id=row.device_agent_id,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.used_at or row.last_used_at,
        revoked_at=row.revoked_at,
    )
