"""Tokens and idempotency keys."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session

from contract.administration import TokenKind, TokenScope
from contract.queries import TokensQuery
from controller.db.models import EndedSessionRow, IdempotencyKeyRow, TokenRow
from controller.errors import TokenNotFoundError

TOKEN_PREFIX: Final = "dyn_"
LAST_USE_STEP: Final = timedelta(minutes=1)


def new_token_text() -> str:
    """`dyn_` and 43 url-safe characters: 256 bits of chance."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def token_digest(text: str) -> str:
    """SHA-256 in hex; a token has 256 random bits, so it needs no salt and no slow hash."""
    return hashlib.sha256(text.encode()).hexdigest()


def token_id(token_sha256: str) -> str:
    """What names a token where its text must not stand: the beginning of its digest."""
    return token_sha256[:16]


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """What a new token is for."""

    kind: TokenKind
    name: str
    scope: TokenScope | None = None
    device_agent_id: str | None = None
    expires_at: datetime | None = None


class TokenRepository:
    """Tokens by the digest of their text."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def issue(self, grant: TokenGrant, now: datetime, text: str | None = None) -> str:
        """The text of a new token, to be shown once; `text` stores a given one instead."""
        text = text or new_token_text()
        self._session.add(
            TokenRow(
                token_sha256=token_digest(text),
                kind=grant.kind,
                scope=grant.scope,
                name=grant.name,
                device_agent_id=grant.device_agent_id,
                created_at=now,
                expires_at=grant.expires_at,
            )
        )
        return text

    def find(self, text: str, now: datetime) -> TokenRow | None:
        """The token if it is good now: known, not expired, not revoked, and an enrolment not yet used."""
        return self.find_digest(token_digest(text), now)

    def find_digest(self, token_sha256: str, now: datetime) -> TokenRow | None:
        """As `find`, for who knows only the digest: the browser's session."""
        row = self._session.get(TokenRow, token_sha256)
        if row is None or row.revoked_at is not None:
            return None
        if row.expires_at is not None and row.expires_at <= now:
            return None
        if row.kind is TokenKind.ENROLMENT and row.used_at is not None:
            return None
        return row

    def get_by_id(self, token_id: str) -> TokenRow:
        """The token whose digest begins so, locked; TokenNotFoundError if there is none."""
        begins = TokenRow.token_sha256.startswith(token_id, autoescape=True)
        row = self._session.scalars(select(TokenRow).where(begins).with_for_update()).one_or_none()
        if row is None:
            raise TokenNotFoundError(token_id)
        return row

    def page(self, query: TokensQuery, now: datetime) -> list[TokenRow]:
        """At most one more than asked for, newest first; the one more says that there is a next page."""
        newest = (TokenRow.created_at.desc(), TokenRow.token_sha256.desc())
        found = select(TokenRow).order_by(*newest).limit(query.limit + 1)
        if query.kind is not None:
            found = found.where(TokenRow.kind == query.kind)
        if not query.ended:
            unused = or_(TokenRow.kind != TokenKind.ENROLMENT, TokenRow.used_at.is_(None))
            unexpired = or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > now)
            found = found.where(TokenRow.revoked_at.is_(None), unexpired, unused)
        if query.page_token is not None:
            last = self.get_by_id(query.page_token)
            older = TokenRow.created_at < last.created_at
            same_moment = and_(
                TokenRow.created_at == last.created_at, TokenRow.token_sha256 < last.token_sha256
            )
            found = found.where(or_(older, same_moment))
        return list(self._session.scalars(found))

    def note_use(self, row: TokenRow, now: datetime) -> None:
        """Write down that a token is in use, unless another request did within LAST_USE_STEP."""
        stale = or_(TokenRow.last_used_at.is_(None), TokenRow.last_used_at <= now - LAST_USE_STEP)
        self._session.execute(
            update(TokenRow).where(TokenRow.token_sha256 == row.token_sha256, stale).values(last_used_at=now)
        )

    def revoke_named(self, kind: TokenKind, name: str, now: datetime) -> None:
        """End every token of the kind that has the name."""
        self._session.execute(
            update(TokenRow)
            .where(TokenRow.kind == kind, TokenRow.name == name, TokenRow.revoked_at.is_(None))
            .values(revoked_at=now)
        )

    def use_once(self, row: TokenRow, now: datetime) -> bool:
        """Mark an enrolment token as used; False when another call was faster."""
        used = self._session.execute(
            update(TokenRow)
            .where(TokenRow.token_sha256 == row.token_sha256, TokenRow.used_at.is_(None))
            .values(used_at=now)
            .returning(TokenRow.token_sha256)
        ).all()
        return len(used) == 1


def use_is_stale(row: TokenRow, now: datetime) -> bool:
    """Whether it is time to note the use of a person's token; a device agent says itself when it was here."""
    long_ago = row.last_used_at is None or now - row.last_used_at >= LAST_USE_STEP
    return row.kind is TokenKind.USER and long_ago


class SessionRepository:
    """Browsers' sessions that were ended before their time."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def is_ended(self, cookie: str) -> bool:
        """Whether its person has logged out."""
        return self._session.get(EndedSessionRow, token_digest(cookie)) is not None

    def end(self, cookie: str, expires_at: datetime) -> None:
        """Refuse the cookie from now on; remembered until `expires_at`, when it ends anyway."""
        self._session.merge(EndedSessionRow(cookie_sha256=token_digest(cookie), expires_at=expires_at))


class IdempotencyRepository:
    """Answers to keep for repeated requests."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, principal: str, key: str) -> IdempotencyKeyRow | None:
        """The kept answer, or None for a new key."""
        return self._session.get(IdempotencyKeyRow, (principal, key))

    def keep(self, row: IdempotencyKeyRow) -> None:
        """In the same transaction as what the request did."""
        self._session.add(row)
