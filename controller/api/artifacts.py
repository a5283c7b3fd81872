"""Artifacts over HTTP: which files a run's attempts left, and their content."""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Response

from contract import routes
from contract.artifacts import ArtifactKind, ArtifactList, ArtifactView
from contract.ids import AttemptId, Name, RunId
from controller.api.routing import serves
from controller.api.runs import Context, Viewer
from controller.db.attempts import AttemptRepository
from controller.db.events import ArtifactRepository
from controller.db.models import ArtifactRow
from controller.db.runs import JobRepository, RunRepository

router = APIRouter(tags=["artifacts"])

_TEXT: Final = "text/plain; charset=utf-8"
_BYTES: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class ArtifactPlace:
    """Where a file is: the last two words of its address."""

    attempt_id: Annotated[AttemptId, Path()]
    name: Annotated[Name, Path()]


@serves(router, routes.LIST_ARTIFACTS)
def list_artifacts(run_id: RunId, context: Context, _: Viewer) -> ArtifactList:
    """Every file of the run's attempts: runtime logs, crash and memory reports."""
    with context.view() as work:
        RunRepository(work.session).get(run_id)
        jobs = JobRepository(work.session).of_runs([run_id])
        attempts = AttemptRepository(work.session).of_jobs([job.job_id for job in jobs])
        rows = ArtifactRepository(work.session).of([attempt.attempt_id for attempt in attempts])
        return ArtifactList(run_id=run_id, artifacts=[_view(row) for row in rows])


@serves(router, routes.GET_ARTIFACT, response_class=Response)
def get_artifact(place: Annotated[ArtifactPlace, Depends()], context: Context, _: Viewer) -> Response:
    """The file's content, to be saved and never shown as a page: a program on a device wrote it."""
    with context.view() as work:
        AttemptRepository(work.session).get(place.attempt_id)
        artifact = ArtifactRepository(work.session).get(place.attempt_id, place.name)
        content = ArtifactRepository(work.session).content(artifact)
    # Both words are checked by their patterns: nothing in them can end the header's quoted text.
    filename = f"{place.attempt_id}-{place.name}"
    return Response(
        content,
        media_type=_BYTES if artifact.kind is ArtifactKind.OTHER else _TEXT,
        headers={"Content-Disposition": f'attachment; filename="{filename}"'},
    )


def _view(row: ArtifactRow) -> ArtifactView:
    return ArtifactView(
        attempt_id=row.attempt_id,
        name=row.name,
        kind=row.kind,
        size_bytes=row.size_bytes,
        sha256=row.sha256,
        created_at=row.created_at,
    )
