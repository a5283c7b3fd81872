"""The browser's session: a signed cookie that names a token by its digest, never the token itself.

The server keeps nothing: a session ends when it expires, or at once when its token is revoked.
"""

import base64
import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from controller.settings import SESSION_SECRET_BYTES

SESSION_DURATION: Final = timedelta(hours=12)


class SessionSigner:
    """Makes and checks session cookies with one secret; all replicas must have the same."""

    def __init__(self, secret: bytes) -> None:
        """`secret` has at least 32 bytes; ValueError otherwise."""
        if len(secret) < SESSION_SECRET_BYTES:
            raise ValueError(
                f"the session secret has {len(secret)} bytes, at least {SESSION_SECRET_BYTES} are needed"
            )
        self._secret = secret

    def cookie_for(self, token_sha256: str, now: datetime) -> str:
        """The cookie's value for a session that begins now."""
        expires_s = int((now + SESSION_DURATION).timestamp())
        payload = f"{token_sha256}.{expires_s}"
        return f"{payload}.{self._signature(payload)}"

    def token_of(self, cookie: str, now: datetime) -> str | None:
        """SHA-256 of the session's token; None for a cookie that is forged, damaged or expired."""
        payload, _, signature = cookie.rpartition(".")
        # Compared before anything in it is read, and in constant time.
        if not hmac.compare_digest(signature.encode(), self._signature(payload).encode()):
            return None
        token_sha256, _, expires_s = payload.partition(".")
        if now >= datetime.fromtimestamp(int(expires_s), UTC):
            return None
        return token_sha256

    def _signature(self, payload: str) -> str:
        digest = hmac.new(self._secret, payload.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def session_secret(configured: str, home: Path) -> bytes:
    """The configured secret (base64, as the settings checked it), else the one kept in the home folder, made
    at the first start."""
    if configured:
        return base64.b64decode(configured, validate=True)
    return _kept_secret(home / "session-secret")


def _kept_secret(path: Path) -> bytes:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        # Written whole beside it and linked: of two processes that start at once, both read the same.
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".session-") as file:
            file.write(secrets.token_bytes(SESSION_SECRET_BYTES))
            file.flush()
            with contextlib.suppress(FileExistsError):
                os.link(file.name, path)
    return path.read_bytes()
