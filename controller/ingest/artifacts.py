"""Artifacts: files of an attempt, stored once by content."""

import hashlib

import zstandard
from sqlalchemy.exc import IntegrityError

from controller.attempts.presence import touch_agent
from controller.attempts.turn import Turn
from controller.db.attempts import AttemptRepository
from controller.db.events import ArtifactRepository
from controller.db.models import ArtifactRow, BlobRow
from controller.errors import ArtifactConflictError, AttemptNotFoundError


def store_artifact(turn: Turn, agent_id: str, attempt_id: str, name: str, content: bytes) -> ArtifactRow:
    """Keep a file under a name; again with the same content changes nothing.

    Raises AttemptNotFoundError, and ArtifactConflictError when the name holds another content.
    """
    touch_agent(turn, agent_id)
    attempt = AttemptRepository(turn.session).get_locked(attempt_id)
    if attempt.agent_id != agent_id:
        raise AttemptNotFoundError(attempt_id)
    sha256 = hashlib.sha256(content).hexdigest()
    known = ArtifactRepository(turn.session).find(attempt_id, name)
    if known is not None:
        if known.sha256 != sha256:
            raise ArtifactConflictError(name)
        return known
    if turn.session.get(BlobRow, sha256) is None:
        _keep_blob(
            turn, BlobRow(sha256=sha256, size_bytes=len(content), content_zstd=zstandard.compress(content))
        )
    artifact = ArtifactRow(
        attempt_id=attempt_id,
        name=name,
        sha256=sha256,
        size_bytes=len(content),
        created_at=turn.now,
    )
    turn.session.add(artifact)
    return artifact


def _keep_blob(turn: Turn, blob: BlobRow) -> None:
    try:
        with turn.session.begin_nested():
            turn.session.add(blob)
    except IntegrityError:
        # Another attempt brought the same content a moment ago: it is stored, which is all we want.
        return
