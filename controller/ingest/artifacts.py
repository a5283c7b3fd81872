"""Artifacts: files of an attempt, stored once by content. See docs/adr/0027."""

import hashlib
from dataclasses import dataclass

import zstandard
from sqlalchemy.exc import IntegrityError

from contract.artifacts import MAX_ARTIFACTS_PER_ATTEMPT, ArtifactUpload
from controller.db.attempts import AttemptRepository
from controller.db.events import ArtifactRepository
from controller.db.models import ArtifactRow, AttemptRow, BlobRow
from controller.db.unit_of_work import UnitOfWork
from controller.errors import (
    ArtifactConflictError,
    AttemptNotFoundError,
    AttemptSealedError,
    BadRequestError,
    FencedError,
    TooManyArtifactsError,
)
from controller.protocol.enrolment import touch_agent


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file as it arrived, with what its device agent says of it."""

    attempt_id: str
    name: str
    said: ArtifactUpload
    content: bytes


def store_artifact(work: UnitOfWork, device_agent_id: str, artifact: Artifact) -> ArtifactRow:
    """Keep a file under a name; again with the same content changes nothing, at any time.

    Raises AttemptNotFoundError, FencedError, BadRequestError (the content is not what the digest says),
    ArtifactConflictError (the name holds another content), AttemptSealedError (after the accepted result)
    and TooManyArtifactsError; then nothing is stored.
    """
    touch_agent(work, device_agent_id)
    # Locked first: the result of the same attempt must not be accepted between our look and our write.
    attempt = AttemptRepository(work.session).get_locked(artifact.attempt_id)
    if attempt.device_agent_id != device_agent_id:
        raise AttemptNotFoundError(artifact.attempt_id)
    if artifact.said.fence != attempt.fence:
        raise FencedError(artifact.said.fence, attempt.fence)
    sha256 = hashlib.sha256(artifact.content).hexdigest()
    if artifact.said.sha256 != sha256:
        raise BadRequestError("", f"the body has another SHA-256, {sha256}; send it again")
    known = ArtifactRepository(work.session).find(artifact.attempt_id, artifact.name)
    if known is not None:
        if known.sha256 != sha256:
            raise ArtifactConflictError(artifact.name)
        return known
    _require_room(work, attempt)
    return _keep(work, artifact, sha256)


def _require_room(work: UnitOfWork, attempt: AttemptRow) -> None:
    if attempt.last_seq is not None:
        raise AttemptSealedError(attempt.attempt_id)
    if len(ArtifactRepository(work.session).of([attempt.attempt_id])) >= MAX_ARTIFACTS_PER_ATTEMPT:
        raise TooManyArtifactsError(MAX_ARTIFACTS_PER_ATTEMPT)


def _keep(work: UnitOfWork, artifact: Artifact, sha256: str) -> ArtifactRow:
    size_bytes = len(artifact.content)
    if work.session.get(BlobRow, sha256) is None:
        compressed = zstandard.compress(artifact.content)
        _keep_blob(work, BlobRow(sha256=sha256, size_bytes=size_bytes, content_zstd=compressed))
    row = ArtifactRow(
        attempt_id=artifact.attempt_id,
        name=artifact.name,
        kind=artifact.said.kind,
        sha256=sha256,
        size_bytes=size_bytes,
        created_at=work.now,
    )
    work.session.add(row)
    return row


def _keep_blob(work: UnitOfWork, blob: BlobRow) -> None:
    try:
        with work.session.begin_nested():
            work.session.add(blob)
    except IntegrityError:
        # Another attempt brought the same content a moment ago: it is stored, which is all we want.
        return
