"""Artifacts: files of an attempt, stored once by content."""

import hashlib

import zstandard
from sqlalchemy.exc import IntegrityError

from controller.db.attempts import AttemptRepository
from controller.db.events import ArtifactRepository
from controller.db.models import ArtifactRow, BlobRow
from controller.db.unit_of_work import UnitOfWork
from controller.errors import ArtifactConflictError, AttemptNotFoundError
from controller.protocol.enrolment import touch_agent


def store_artifact(
    work: UnitOfWork, device_agent_id: str, attempt_id: str, name: str, content: bytes
) -> ArtifactRow:
    """Keep a file under a name; again with the same content changes nothing.

    Raises AttemptNotFoundError, and ArtifactConflictError when the name holds another content.
    """
    touch_agent(work, device_agent_id)
    attempt = AttemptRepository(work.session).get_locked(attempt_id)
    if attempt.device_agent_id != device_agent_id:
        raise AttemptNotFoundError(attempt_id)
    sha256 = hashlib.sha256(content).hexdigest()
    known = ArtifactRepository(work.session).find(attempt_id, name)
    if known is not None:
        if known.sha256 != sha256:
            raise ArtifactConflictError(name)
        return known
    if work.session.get(BlobRow, sha256) is None:
        _keep_blob(
            work, BlobRow(sha256=sha256, size_bytes=len(content), content_zstd=zstandard.compress(content))
        )
    artifact = ArtifactRow(
        attempt_id=attempt_id,
        name=name,
        sha256=sha256,
        size_bytes=len(content),
        created_at=work.now,
    )
    work.session.add(artifact)
    return artifact


def _keep_blob(work: UnitOfWork, blob: BlobRow) -> None:
    try:
        with work.session.begin_nested():
            work.session.add(blob)
    except IntegrityError:
        # Another attempt brought the same content a moment ago: it is stored, which is all we want.
        return
