"""What a run's attempts left as files: logs and reports, to be saved and never shown in the page."""

from collections.abc import Sequence
from typing import Final

from dash import html
from dash.development.base_component import Component

from contract import routes
from contract.artifacts import ArtifactView
from dashboard.parts.badges import moment
from dashboard.parts.panels import panel
from dashboard.parts.tables import Column, Content, table
from dashboard.wording import words

_COLUMNS: Final = (
    Column("File"),
    Column("Kind"),
    Column("Bytes", is_number=True),
    Column("Stored"),
    Column("Attempt"),
)


def files_panel(artifacts: Sequence[ArtifactView]) -> list[Component]:
    """A row for each file; nothing for a run that left none."""
    if not artifacts:
        return []
    return [panel("Files", [table(_COLUMNS, [_row(each) for each in artifacts], "Files of this run")])]


def _row(artifact: ArtifactView) -> list[Content]:
    # The controller sends it as an attachment: no browser makes a page of what a device wrote.
    path = routes.GET_ARTIFACT.path(attempt_id=artifact.attempt_id, name=artifact.name)
    return [
        html.A(artifact.name, href=path, download=f"{artifact.attempt_id}-{artifact.name}"),
        words(artifact.kind),
        str(artifact.size_bytes),
        moment(artifact.created_at),
        html.Code(artifact.attempt_id),
    ]
