"""`dynofarm calibrate`: this machine's best engine options, measured and kept for its device agent."""

import dataclasses
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn

from client.calibration_process import calibration_lines
from client.errors import InfrastructureError
from client.local_farm import stopped_by_sigterm
from client.options import HomeOptions
from client.output import Output
from client.render_calibration import calibration_view
from client.settings import read_settings
from contract.calibration import CalibrationFinished, CalibrationStep
from contract.states import GateExit

_LIMIT_S: Final = 90.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateOptions(HomeOptions):
    """What is calibrated, and for how long at most."""

    model: Annotated[
        str,
        typer.Option("--model", metavar="NAME", help="Model to measure [the only one, or the demo's]."),
    ] = ""
    limit_s: Annotated[
        float,
        typer.Option(
            "--limit-s",
            min=1,
            max=3600,
            help="Seconds after which no further round begins. Loading the model and one round of every "
            "option come on top: a minute or two on a slow machine.",
        ),
    ] = _LIMIT_S


def calibrate(options: CalibrateOptions, output: Output) -> int:
    """Measure the best threads, batch cap and prefill chunk of this machine. Runs on it use them wherever
    they leave these options open; a result in which nothing separated is not kept. Takes two or three
    minutes; keep the machine as busy as it will be."""
    program = [*read_settings().calibrate_command, "--home", str(options.farm_home().path)]
    program += ["--model", options.model] if options.model else []
    program += ["--limit-s", str(options.limit_s)]
    with stopped_by_sigterm():
        finished = _finished(program, output)
    output.result(finished, calibration_view(finished))
    return GateExit.PASS


def _finished(program: list[str], output: Output) -> CalibrationFinished:
    with _Progress(output) as progress:
        for line in calibration_lines(program):
            if isinstance(line, CalibrationFinished):
                return line
            progress.show(line)
    raise InfrastructureError("calibration-failed", "it ended without a result", "run it again")


class _Progress:
    """A bar over the time on a terminal, a line for each round elsewhere."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._told = ""
        self._bar = Progress(
            TextColumn("calibrating"),
            BarColumn(),
            TextColumn("{task.completed:.0f} of at most {task.total:.0f} s"),
            TextColumn("{task.description}", markup=False),
            console=output.messages,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> "_Progress":
        if self._output.messages.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, step: CalibrationStep) -> None:
        if self._output.messages.is_terminal:
            self._bar.update(self._task, description=step.message, completed=step.spent_s, total=step.limit_s)
            return
        round_of, _, _ = step.message.partition(":")
        if round_of != self._told:
            self._told = round_of
            self._output.say(f"{step.spent_s:.0f} s: {round_of}")
