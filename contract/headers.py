"""Names of what travels beside a body: headers and the cookie of a browser's session."""

from typing import Final

IDEMPOTENCY_KEY_HEADER: Final = "Idempotency-Key"
"""Chosen by the caller: the same key with the same body gets the first answer again."""
IDEMPOTENCY_REPLAYED_HEADER: Final = "Idempotency-Replayed"
"""`true` with an answer that an earlier request got."""
REQUEST_ID_HEADER: Final = "X-Request-Id"
"""Of each answer, and of a problem as trace_id; a caller may choose it."""
SESSION_COOKIE: Final = "dynofarm_session"
