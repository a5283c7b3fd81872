"""Live progress of a run on standard error: bars on a terminal, one line per finished trial elsewhere."""

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from client.follow import RunProgress
from client.output import Output
from client.trial_tally import TrialCounts
from contract.rest import LiveView, RunView

# Bars of older trials make room, so that a run of hundreds stays on one screen.
_BARS_SHOWN = 14


class ProgressView(Protocol):
    """Shows updates while it is open."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, progress: RunProgress) -> None:
        """Show where the run stands now."""


def progress_view(output: Output, planned_calls: int | None = None) -> ProgressView:
    """The view that fits standard error. planned_calls: calls of a trial where they are known before."""
    if output.messages.is_terminal:
        return ProgressBars(output.messages, planned_calls)
    return ProgressLines(output)


class ProgressBars:
    """A bar for the whole run and one for each trial."""

    def __init__(self, console: Console, planned_calls: int | None) -> None:
        self._planned_calls = planned_calls
        self._bars: dict[int, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=4,
            expand=True,
        )
        self._whole = self._progress.add_task("waiting", total=None, note="")
        self._attempt_id: str | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, progress: RunProgress) -> None:
        live = progress.live
        if live is not None and live.attempt_id != self._attempt_id:
            self._forget_bars(live.attempt_id)
        done = sum(trial.wall_s is not None for trial in progress.tally.trials.values())
        total = live.trials_total if live is not None and live.trials_total else None
        self._progress.update(
            self._whole, description=headline(progress.run), completed=done, total=total, note=rate(live)
        )
        for trial in progress.tally.trials.values():
            self._update_bar(trial, progress.tally.calls_of_a_trial or self._planned_calls)
        for number in sorted(self._bars)[:-_BARS_SHOWN]:
            self._progress.update(self._bars[number], visible=False)

    def _forget_bars(self, attempt_id: str | None) -> None:
        for bar in self._bars.values():
            self._progress.remove_task(bar)
        self._bars.clear()
        self._attempt_id = attempt_id

    def _update_bar(self, trial: TrialCounts, calls: int | None) -> None:
        if trial.trial not in self._bars:
            self._bars[trial.trial] = self._progress.add_task(trial.title, total=calls, note="")
        bar = self._bars[trial.trial]
        note = f"{trial.tokens} tokens" if trial.wall_s is None else f"{trial.wall_s:.2f} s{_mark(trial)}"
        self._progress.update(bar, completed=trial.calls_done, total=calls, note=note)
        if trial.wall_s is not None:
            self._progress.stop_task(bar)


class ProgressLines:
    """A line when the run's headline changes and when a trial ends."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._headline = ""
        self._told: set[tuple[str | None, int]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, progress: RunProgress) -> None:
        if headline(progress.run) != self._headline:
            self._headline = headline(progress.run)
            self._output.say(self._headline)
        attempt = progress.live.attempt_id if progress.live is not None else None
        for trial in progress.tally.trials.values():
            if trial.wall_s is not None and (attempt, trial.trial) not in self._told:
                self._told.add((attempt, trial.trial))
                self._output.say(f"{trial.title}: {trial.wall_s:.2f} s, {trial.tokens} tokens{_mark(trial)}")


def headline(run: RunView) -> str:
    """The run's state, and why it waits if it waits."""
    if run.outcome is not None:
        return f"run {run.outcome}"
    waiting = sorted({job.waiting_reason for job in run.jobs if job.waiting_reason})
    if waiting:
        return f"run {run.state}, waiting: {'; '.join(waiting)}"
    states = sorted({attempt.state.value for job in run.jobs for attempt in job.attempts[-1:]})
    return f"run {run.state}" + (f", attempt {', '.join(states)}" if states else "")


def rate(live: LiveView | None) -> str:
    """The newest figure of the output rate, e.g. `41 tokens/s`; "" without one."""
    series = live.series if live is not None else []
    newest = [line.points[-1].value for line in series if line.name == "output_tokens_per_s" and line.points]
    return f"{newest[0]:.0f} tokens/s" if newest else ""


def _mark(trial: TrialCounts) -> str:
    return "" if trial.status == "completed" else f", {trial.status}"
