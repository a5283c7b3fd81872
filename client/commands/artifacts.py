"""`dynofarm artifacts`: the files that a run's attempts left, listed and saved."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Annotated

import typer

from client.api import DynofarmClient
from client.errors import InfrastructureError, UsageError
from client.options import RunOptions
from client.output import Output
from client.render_administration import artifacts_table
from contract import routes
from contract.artifacts import ArtifactView
from contract.states import GateExit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactsOptions(RunOptions):
    """Where to save them."""

    download: Annotated[
        Path | None,
        typer.Option("--download", "-d", metavar="DIR", help="Save every file into this folder."),
    ] = None


class SavedArtifact(ArtifactView):
    """What `dynofarm artifacts --json` writes of each file."""

    path: str | None = None
    """Where it was saved; None where it was only listed."""


def artifacts(options: ArtifactsOptions, output: Output) -> int:
    """List a run's files: runtime logs, crash and memory reports. With --download, save them."""
    with options.client() as client:
        listed = client.call(routes.LIST_ARTIFACTS, run_id=options.run_id).artifacts
        saved = [_saved(client, each, options.download) for each in listed]
    output.result(saved, artifacts_table(saved))
    return GateExit.PASS


def _saved(client: DynofarmClient, artifact: ArtifactView, folder: Path | None) -> SavedArtifact:
    values = artifact.model_dump()
    if folder is None:
        return SavedArtifact(**values)
    # Both words were checked by the contract's patterns: together they are one file name and no path.
    path = folder / f"{artifact.attempt_id}-{artifact.name}"
    content = client.call(routes.GET_ARTIFACT, attempt_id=artifact.attempt_id, name=artifact.name)
    if hashlib.sha256(content).hexdigest() != artifact.sha256:
        raise InfrastructureError(
            "artifact-damaged", f"{artifact.name} did not arrive whole", "run the command again"
        )
    _write_once(path, content)
    return SavedArtifact(**values, path=str(path))


def _write_once(path: Path, content: bytes) -> None:
    """A file that is there with this content stays; with another one, UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError as error:
        if path.is_file() and path.read_bytes() == content:
            return
        raise UsageError("file-exists", f"{path} exists", "save into another folder") from error
    except OSError as error:
        raise UsageError("bad-folder", f"cannot write {path}: {error.strerror}") from error
