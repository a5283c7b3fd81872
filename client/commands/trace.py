"""`dynofarm trace`: what happened in an attempt, as a file for Perfetto's viewer."""

import dataclasses
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import TypeAdapter, ValidationError
from rich.text import Text

from client.api import DynofarmClient
from client.errors import InconclusiveError, UsageError
from client.options import ControllerOptions
from client.output import Output
from contract.ids import AttemptId, RunId
from contract.model import ContractModel
from contract.rest import AttemptView
from contract.states import GateExit

_TRACED_ID: Final[TypeAdapter[str]] = TypeAdapter(AttemptId | RunId)
VIEWER: Final = "https://ui.perfetto.dev"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions(ControllerOptions):
    """Which attempt, and into which file."""

    traced_id: Annotated[
        str,
        typer.Argument(metavar="RUN|ATTEMPT", help="Id of a run, for its newest ended attempt, or of one."),
    ]
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write [ATTEMPT.pftrace here].")
    ] = None

    def __post_init__(self) -> None:
        """UsageError for what can be neither."""
        try:
            _TRACED_ID.validate_python(self.traced_id)
        except ValidationError as error:
            raise UsageError(
                "bad-attempt-id",
                f"{self.traced_id!r} is not the id of a run or of an attempt",
                "`dynofarm runs` lists the runs; `dynofarm runs --json` has their attempts too",
            ) from error


class TraceSummary(ContractModel):
    """What was written. times_moved: events that stood before the one ahead of them on their track."""

    attempt_id: AttemptId
    file: str
    size_bytes: int
    is_complete: bool
    """False while the attempt runs, and where its runtime was killed: the trace is what there is."""
    duration_s: float
    events: int
    packets: int
    trials: int
    arms: dict[str, list[str]]
    """Its agents, per arm."""
    calls: int
    batches: int
    block_events: int
    prefix_hits: int
    times_moved: int


def trace(options: TraceOptions, output: Output) -> int:
    """Write an attempt's events as a Perfetto trace. Agents, batches, blocks, prefix hits and memory on a
    common time axis. Open the file at https://ui.perfetto.dev."""
    # Perfetto's schema takes a tenth of a second to import; no other command is to wait for it.
    from client.trace.attempt_trace import write_trace

    with options.client() as client:
        attempt_id = _attempt_id(client, options.traced_id)
        path = options.output or Path(f"{attempt_id}.pftrace")
        written = write_trace(client, attempt_id, path)
    counted = written.timeline.counted
    summary = TraceSummary(
        attempt_id=attempt_id,
        file=str(path),
        size_bytes=written.size_bytes,
        is_complete=counted.is_complete,
        duration_s=(counted.last_ns - (counted.first_ns or 0)) / 1e9,
        events=counted.events,
        packets=written.packets,
        trials=counted.trials,
        arms={name: sorted(arm.agents) for name, arm in written.timeline.arms.items()},
        calls=counted.calls,
        batches=counted.batches,
        block_events=counted.block_events,
        prefix_hits=counted.prefix_hits,
        times_moved=written.times_moved,
    )
    output.result(summary, _shown(summary))
    if not summary.is_complete:
        output.say("the runtime's end is not among the events: this is the trace so far")
    return GateExit.PASS


def _attempt_id(client: DynofarmClient, traced_id: str) -> str:
    """The attempt itself, or the newest ended one of the run; an error that lists them when that is none."""
    if traced_id.startswith("att_"):
        return client.attempt(traced_id).attempt_id
    attempts = [attempt for job in client.run(traced_id).jobs for attempt in job.attempts]
    ended = [attempt for attempt in attempts if attempt.ended_at is not None]
    if not ended:
        there = _listed(attempts) or "it has none yet"
        raise InconclusiveError(
            "no-ended-attempt",
            f"no attempt of {traced_id} has ended: {there}",
            "`dynofarm watch RUN` follows it; name one of them for a trace so far",
        )
    if len({attempt.job_id for attempt in ended}) > 1:
        raise UsageError(
            "several-attempts",
            f"{traced_id} was measured in several jobs: {_listed(ended)}",
            "`dynofarm trace ATTEMPT` writes one of them",
        )
    # Ids sort by the time of their making (contract/ids.py).
    return max(attempt.attempt_id for attempt in ended)


def _listed(attempts: list[AttemptView]) -> str:
    return ", ".join(
        f"{each.attempt_id} ({each.device_id}, {each.reason or each.state})" for each in attempts
    )


def _shown(summary: TraceSummary) -> Text:
    return Text(
        f"{summary.file}: {summary.trials} trials, {summary.calls} calls, {summary.batches} batches, "
        f"{summary.prefix_hits} prefix hits, {summary.block_events} block events in "
        f"{summary.duration_s:.1f} s ({summary.size_bytes} bytes). Open it in Perfetto's viewer, {VIEWER}",
        overflow="fold",
    )
