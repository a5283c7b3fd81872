"""Tokens of an embedded farm: the first admin's, kept in a file, and one for the machine's own agent."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Final

from contract.home import HomeFolder
from controller.api.context import ApiContext
from controller.db.models import TokenKind, TokenScope
from controller.db.tokens import TokenGrant, TokenRepository

_ENROLMENT_VALID: Final = timedelta(minutes=10)


def ensure_admin_token(context: ApiContext, home: Path) -> Path:
    """The file with a token that the database knows; a new one at first, or when either was lost."""
    path = HomeFolder(home).admin_token_file
    text = home_token(home)
    with context.unit_of_work() as work:
        tokens = TokenRepository(work.session)
        if text and tokens.find(text, work.now) is not None:
            return path
        # The one whose text was lost must not stay valid beside the new one.
        tokens.revoke_named(TokenKind.USER, "admin", work.now)
        grant = TokenGrant(TokenKind.USER, "admin", scope=TokenScope.ADMIN)
        _write_secret(path, tokens.issue(grant, work.now))
    return path


def home_token(home: Path) -> str:
    """The text of the token that this home has; empty without one that can be read."""
    try:
        return HomeFolder(home).admin_token_file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def enrolment_token(context: ApiContext) -> str:
    """A token with which the agent of this machine may enrol once, soon."""
    with context.unit_of_work() as work:
        grant = TokenGrant(
            TokenKind.ENROLMENT, "agent of this machine", expires_at=work.now + _ENROLMENT_VALID
        )
        return TokenRepository(work.session).issue(grant, work.now)


def _write_secret(path: Path, text: str) -> None:
    """Readable by nobody else, from the first byte on."""
    beside = path.with_suffix(".new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text + "\n")
    os.replace(beside, path)
