"""Tokens and idempotency keys."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import update
from sqlalchemy.orm import Session

from controller.db.models import IdempotencyKeyRow, TokenKind, TokenRow, TokenScope

TOKEN_PREFIX: Final = "dyn_"


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
        """Within one transaction."""
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

    def use_once(self, row: TokenRow, now: datetime) -> bool:
        """Mark an enrolment token as used; False when another call was faster."""
        used = self._session.execute(
            update(TokenRow)
            .where(TokenRow.token_sha256 == row.token_sha256, TokenRow.used_at.is_(None))
            .values(used_at=now)
            .returning(TokenRow.token_sha256)
        ).all()
        return len(used) == 1


class IdempotencyRepository:
    """Answers to keep for repeated requests."""

    def __init__(self, session: Session) -> None:
        """Within one transaction."""
        self._session = session

    def find(self, principal: str, key: str) -> IdempotencyKeyRow | None:
        """The kept answer, or None for a new key."""
        return self._session.get(IdempotencyKeyRow, (principal, key))

    def keep(self, row: IdempotencyKeyRow) -> None:
        """In the same transaction as what the request did."""
        self._session.add(row)
