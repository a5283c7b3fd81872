"""`dynofarm trace`: what happened in an attempt, as a file for Perfetto's viewer."""

import dataclasses
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import TypeAdapter, ValidationError
from rich.text import Text

from client.errors import UsageError
from client.options import ControllerOptions
from client.output import Output
from contract.ids import AttemptId
from contract.model import ContractModel
from contract.states import GateExit

_ATTEMPT_ID: Final[TypeAdapter[str]] = TypeAdapter(AttemptId)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions(ControllerOptions):
    """Which attempt, and into which file."""

    attempt_id: Annotated[str, typer.Argument(metavar="ATTEMPT", help="Id of the attempt.")]
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write [ATTEMPT.pftrace here].")
    ] = None

    def __post_init__(self) -> None:
        """UsageError for what cannot be an attempt."""
        try:
            _ATTEMPT_ID.validate_python(self.attempt_id)
        except ValidationError as error:
            raise UsageError(
                "bad-attempt-id",
                f"{self.attempt_id!r} is no id of an attempt",
                "`dynofarm runs --json` lists runs with their jobs and attempts",
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
    common time axis."""
    # Perfetto's schema takes a tenth of a second to import; no other command is to wait for it.
    from client.trace.attempt_trace import write_trace

    path = options.output or Path(f"{options.attempt_id}.pftrace")
    with options.client() as client:
        client.attempt(options.attempt_id)
        written = write_trace(client, options.attempt_id, path)
    counted = written.timeline.counted
    summary = TraceSummary(
        attempt_id=options.attempt_id,
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


def _shown(summary: TraceSummary) -> Text:
    return Text(
        f"{summary.file}: {summary.trials} trials, {summary.calls} calls, {summary.batches} batches, "
        f"{summary.prefix_hits} prefix hits, {summary.block_events} block events in "
        f"{summary.duration_s:.1f} s ({summary.size_bytes} bytes). Open it in Perfetto's trace viewer.",
        overflow="fold",
    )
