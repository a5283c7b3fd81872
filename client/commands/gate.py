"""`dynofarm gate`: the verdict of a run as an exit code, for CI also as JUnit and as Markdown."""

import dataclasses
import os
from pathlib import Path
from typing import Annotated

import typer

from client.api import DynofarmClient
from client.commands.runs import WATCH_PATIENCE
from client.errors import ClientError, UsageError
from client.follow import RunFollower, WaitNotice
from client.junit import junit_of_error, junit_of_report
from client.options import RunOptions
from client.output import Output
from client.progress import progress_view
from client.pull_request_comment import comment
from client.render import gate_view
from client.settings import read_settings
from contract.rest import GateView


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions(RunOptions):
    """Whether to wait, and what to write."""

    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the run is completed; without, exit code 3.")
    ] = True
    timeout_s: Annotated[
        float | None, typer.Option("--timeout-s", help="Give up waiting after this long; exit code 4.")
    ] = None
    junit: Annotated[Path | None, typer.Option("--junit", help="Write a JUnit file.")] = None
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Write a comment for a pull request.")
    ] = None

    def __post_init__(self) -> None:
        """UsageError for a file that could not be written, before hours are waited for its content."""
        super(GateOptions, self).__post_init__()
        for path, option in ((self.junit, "--junit"), (self.markdown, "--markdown")):
            if path is not None:
                _check_writable(path, option)


def gate(options: GateOptions, output: Output) -> int:
    """Exit with the verdict of a run. 0 pass, 1 regression, 2 usage, 3 inconclusive, 4 infrastructure,
    5 cancelled, 6 no capacity."""
    try:
        with options.client(WATCH_PATIENCE, WaitNotice(output)) as client:
            found = _verdict(client, options, output)
            _write_files(client, options)
    except ClientError as error:
        # CI shows this file; without one it would show nothing at all.
        if options.junit is not None:
            _write(options.junit, junit_of_error(options.run_id, error), "--junit")
        raise
    output.result(found, gate_view(found))
    return found.exit_code


def _verdict(client: DynofarmClient, options: GateOptions, output: Output) -> GateView:
    if options.wait:
        with progress_view(output) as view:
            follower = RunFollower(client, options.run_id, read_settings().poll_s)
            for progress in follower.updates(options.timeout_s):
                view.update(progress)
    return client.gate(options.run_id)


def _write_files(client: DynofarmClient, options: GateOptions) -> None:
    if options.junit is None and options.markdown is None:
        return
    report = client.report(options.run_id)
    if options.junit is not None:
        _write(options.junit, junit_of_report(report), "--junit")
    if options.markdown is not None:
        _write(
            options.markdown,
            comment(report, f"dynofarm submit --again {options.run_id} --watch{options.same_farm}"),
            "--markdown",
        )


def _check_writable(path: Path, option: str) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(
            "bad-file", f"{option} {path}: the folder {folder} does not exist", f"mkdir -p {folder}"
        )
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError("bad-file", f"{option} {path} cannot be written", "name another file")


def _write(path: Path, text: str, option: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError("bad-file", f"{option} {path} cannot be written: {error.strerror}") from error
