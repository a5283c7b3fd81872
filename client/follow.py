"""Follows a run to its end: asks, and gives what changed. It knows nothing of screens."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from client.api import DynofarmClient
from client.errors import InfrastructureError
from client.output import Output
from client.stored_event import parsed_event
from client.trial_tally import TrialTally
from contract.events import Event, Stream
from contract.rest import LiveView, RunView
from contract.states import RunState
from rest.errors import RestError

# A live view is computed from all events so far: seldom enough not to disturb what is measured.
LIVE_EVERY_POLLS: Final = 3
NOTICE_EVERY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Where a run stands. tally is that of the newest attempt, live None before there is one."""

    run: RunView
    live: LiveView | None
    tally: TrialTally

    @property
    def is_complete(self) -> bool:
        """Whether nothing will change any more."""
        return self.run.state is RunState.COMPLETED


@dataclass(slots=True)
class RunFollower:
    """Polls one run. poll_s between two looks."""

    client: DynofarmClient
    run_id: str
    poll_s: float
    _live: LiveView | None = None
    _tally: TrialTally = field(default_factory=TrialTally)
    _attempt_id: str | None = None
    _after_seq: int = 0
    _polls: int = 0

    def updates(self, timeout_s: float | None = None) -> Iterator[RunProgress]:
        """A progress for each look; the last one is complete. InfrastructureError when time is up.

        Once there was an answer, a controller or database that is away does not end this before its time.
        """
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            progress = self._ask_once()
            yield progress
            if progress.is_complete:
                return
            if time.monotonic() + self.poll_s > deadline:
                raise InfrastructureError(
                    "run-not-completed",
                    f"run {self.run_id} is not completed after {timeout_s:g} s; it goes on without us",
                    f"`dynofarm watch {self.run_id}` looks again, `dynofarm cancel {self.run_id}` ends it",
                )
            time.sleep(self.poll_s)
            self.client.wait_up_to(deadline - time.monotonic())

    def _ask_once(self) -> RunProgress:
        run = self.client.run(self.run_id)
        newest = _newest_attempt(run)
        if newest is not None:
            if newest != self._attempt_id:
                self._attempt_id, self._after_seq, self._tally = newest, 0, TrialTally()
            for event in self._new_control_events(newest):
                self._tally.add(event)
            if self._polls % LIVE_EVERY_POLLS == 0 or run.state is RunState.COMPLETED:
                self._live = self.client.live(self.run_id)
            self._polls += 1
        return RunProgress(run, self._live, self._tally)

    def _new_control_events(self, attempt_id: str) -> Iterator[Event]:
        for stored in self.client.events(attempt_id, Stream.CONTROL, self._after_seq):
            event = parsed_event(stored)
            self._after_seq = event.seq
            yield event


@dataclass(slots=True)
class WaitNotice:
    """Says that a controller is waited for: when that begins, when the reason changes, and now and then."""

    output: Output
    _said: str = ""
    _said_at_s: float = -math.inf

    def __call__(self, error: RestError, wait_s: float) -> None:
        """Told of each failure that is waited out."""
        now_s = time.monotonic()
        if error.detail == self._said and now_s < self._said_at_s + NOTICE_EVERY_S:
            return
        self._said, self._said_at_s = error.detail, now_s
        self.output.say(f"waiting for the controller: {error.detail}")


def _newest_attempt(run: RunView) -> str | None:
    """Ids sort by the time of their making (contract/ids.py)."""
    return max((attempt.attempt_id for job in run.jobs for attempt in job.attempts), default=None)
