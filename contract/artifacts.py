"""Files of an attempt: what a device agent uploads, and how people find them again."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import AwareDatetime, Field

from contract.events.envelope import Count
from contract.ids import AttemptId, Name, RunId, Sha256
from contract.model import ContractModel

MAX_ARTIFACTS_PER_ATTEMPT: Final = 32


class ArtifactKind(StrEnum):
    """What a file is. All but `other` are text in UTF-8."""

    RUNTIME_LOG = "runtime_log"
    CRASH_REPORT = "crash_report"
    JETSAM_REPORT = "jetsam_report"
    OTHER = "other"


class ArtifactUpload(ContractModel):
    """Query of PUT /agent/attempts/{id}/artifacts/{name}; the body is the file itself."""

    fence: Annotated[int, Field(ge=1, lt=2**63)]
    """Of the lease under which the attempt ran."""
    kind: ArtifactKind
    sha256: Sha256
    """Of the body: a file that was cut on its way is refused."""


class ArtifactRef(ContractModel):
    """A file that belongs to the attempt."""

    name: Name
    sha256: Sha256
    size_bytes: Count


class ArtifactView(ContractModel):
    """A stored file; GET /v1/attempts/{attempt_id}/artifacts/{name} gives its content."""

    attempt_id: AttemptId
    name: Name
    kind: ArtifactKind
    size_bytes: Count
    sha256: Sha256
    created_at: AwareDatetime


class ArtifactList(ContractModel):
    """Every file of a run's attempts, the newest attempt last."""

    run_id: RunId
    artifacts: list[ArtifactView]
