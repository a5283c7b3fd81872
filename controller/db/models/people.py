"""Who may do what, what they did, and answers that a repeated request must get again."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from contract.administration import TokenKind, TokenScope
from controller.db.models.columns import Row, RowNumber, UtcDateTime, WordText


class TokenRow(Row):
    """A bearer token, as the SHA-256 of its text in hex: the text itself is shown once and never kept."""

    __tablename__ = "tokens"

    token_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[TokenKind] = mapped_column(WordText(TokenKind))
    scope: Mapped[TokenScope | None] = mapped_column(WordText(TokenScope))
    name: Mapped[str] = mapped_column(String(200))
    device_agent_id: Mapped[str | None] = mapped_column("agent_id", ForeignKey("agents.agent_id"))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """When an enrolment token was exchanged: it works once."""
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """Coarse: written at most once in LAST_USE_STEP."""
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class EndedSessionRow(Row):
    """A browser's session that its person has ended, by the digest of its cookie, until it expires anyway."""

    __tablename__ = "ended_sessions"

    cookie_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class IdempotencyKeyRow(Row):
    """The answer that a repeated request with the same key gets; another body under it is refused."""

    __tablename__ = "idempotency_keys"

    principal: Mapped[str] = mapped_column(String(200), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    request_sha256: Mapped[str] = mapped_column(String(64))
    status_code: Mapped[int]
    answer: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class AuditRow(Row):
    """Who did what to whom: decisions of people, kept for good."""

    __tablename__ = "audit"
    __table_args__ = (Index(None, "subject", "audit_id"),)

    audit_id: Mapped[int] = mapped_column(RowNumber, primary_key=True, autoincrement=True)
    principal: Mapped[str] = mapped_column(String(200))
    action: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(200))
    detail: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class BlobRow(Row):
    """The content of an artifact, once, whatever it is called and however many attempts have it."""

    __tablename__ = "blobs"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    size_bytes: Mapped[int]
    content_zstd: Mapped[bytes] = mapped_column(LargeBinary)
