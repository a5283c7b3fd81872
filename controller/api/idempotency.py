"""Repeated requests: the same Idempotency-Key with the same body gets the first answer again.

The key is kept in the transaction of what the request did, so there is no moment in which one exists without
the other.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final

from fastapi import Header
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError

from contract.headers import IDEMPOTENCY_KEY_HEADER
from controller.api.auth import Principal
from controller.api.context import ApiContext
from controller.db.models import IdempotencyKeyRow
from controller.db.tokens import IdempotencyRepository
from controller.db.unit_of_work import UnitOfWork
from controller.errors import IdempotencyKeyReusedError

KEPT: Final = timedelta(hours=24)

IdempotencyKey = Annotated[str | None, Header(alias=IDEMPOTENCY_KEY_HEADER, min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request that may come again. key None: it is not to be remembered."""

    principal: Principal
    key: str | None
    route: str
    body: BaseModel
    status: int

    @property
    def digest(self) -> str:
        """SHA-256 over route and body, defaults filled in."""
        return hashlib.sha256(f"{self.route} {self.body.model_dump_json()}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class KeyedAnswer:
    """The answer as JSON; replayed: it is that of an earlier request."""

    content: dict[str, object]
    replayed: bool


def answer_once(
    context: ApiContext, request: KeyedRequest, act: Callable[[UnitOfWork], BaseModel]
) -> KeyedAnswer:
    """Act and remember in one transaction, or give the remembered answer.

    IdempotencyKeyReusedError when the key came with another body before.
    """
    try:
        with context.unit_of_work() as work:
            return _answer(work, request, act)
    except IntegrityError:
        # Another replica was faster with the same key: its answer is there now.
        with context.unit_of_work() as work:
            return _answer(work, request, act)


def _answer(work: UnitOfWork, request: KeyedRequest, act: Callable[[UnitOfWork], BaseModel]) -> KeyedAnswer:
    repository = IdempotencyRepository(work.session)
    if request.key is None:
        return KeyedAnswer(act(work).model_dump(mode="json"), replayed=False)
    kept = repository.find(request.principal.token_sha256, request.key)
    if kept is not None and work.now - kept.created_at < KEPT:
        if kept.request_sha256 != request.digest:
            raise IdempotencyKeyReusedError(request.key)
        return KeyedAnswer(kept.answer, replayed=True)
    if kept is not None:
        work.session.delete(kept)
        work.session.flush()
    content = act(work).model_dump(mode="json")
    repository.keep(
        IdempotencyKeyRow(
            principal=request.principal.token_sha256,
            key=request.key,
            request_sha256=request.digest,
            status_code=request.status,
            answer=content,
            created_at=work.now,
        )
    )
    return KeyedAnswer(content, replayed=False)
