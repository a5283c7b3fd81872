"""Counts of an attempt's trials from its control events: who computes now, and how long the others took."""

from dataclasses import dataclass, field

from client.errors import InfrastructureError
from contract.events import CallFailed, CallFinished, Event, TokenEmitted, TrialFinished, TrialStarted
from measures.facts.attempt import ImpossibleEventsError
from measures.metrics.latency import elapsed_ns

_NS_PER_S = 1e9


@dataclass(slots=True)
class TrialCounts:
    """One trial. wall_s is None while it goes on; status "" likewise."""

    trial: int
    arm: str
    pair: int | None
    warmup: bool
    started_ns: int
    calls_done: int = 0
    tokens: int = 0
    wall_s: float | None = None
    status: str = ""

    def finish(self, event: TrialFinished) -> None:
        """The trial's end; UnexpectedAnswerError when it comes before the start."""
        self.status = event.status
        try:
            self.wall_s = elapsed_ns(self.started_ns, event.t_mono_ns, self.title) / _NS_PER_S
        except ImpossibleEventsError as error:
            raise InfrastructureError("unexpected-answer", str(error)) from error

    @property
    def title(self) -> str:
        """`trial 3: paged, pair 2`, or `trial 1: serial, warm-up`."""
        place = "warm-up" if self.warmup else f"pair {self.pair}" if self.pair else "unpaired"
        return f"trial {self.trial}: {self.arm}, {place}"


@dataclass(slots=True)
class TrialTally:
    """All trials of one attempt that have started, by number. Feed it each control event once, in order."""

    trials: dict[int, TrialCounts] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Count one event; those that do not belong to a trial are passed over."""
        match event:
            case TrialStarted():
                self.trials[event.trial] = TrialCounts(
                    event.trial, event.arm, event.pair, event.warmup, event.t_mono_ns
                )
            case TokenEmitted():
                self._trial(event.trial).tokens += 1
            case CallFinished() | CallFailed():
                self._trial(event.trial).calls_done += 1
            case TrialFinished():
                self._trial(event.trial).finish(event)
            case _:
                pass

    def _trial(self, trial: int) -> TrialCounts:
        try:
            return self.trials[trial]
        except KeyError:
            raise InfrastructureError(
                "unexpected-answer", f"the stored events tell of trial {trial} before its start"
            ) from None

    @property
    def calls_of_a_trial(self) -> int | None:
        """Calls of the first trial that completed: every trial of an attempt does the same work."""
        completed = (trial for trial in self.trials.values() if trial.status == "completed")
        return next((trial.calls_done for trial in completed), None)
