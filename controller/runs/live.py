"""The live view of a run: its newest attempt's figures so far, read from the stored events."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.orm import Session

from contract.events import Event, EventLineError, Stream
from contract.rest import LiveView
from controller.db.attempts import AttemptRepository
from controller.db.events import EventRepository
from controller.db.models import AttemptRow
from controller.db.runs import JobRepository, RunRepository
from controller.runs.results import ANALYSED_STREAMS
from measures.facts.attempt import AttemptFacts, ImpossibleEventsError
from measures.facts.reader import attempt_facts
from measures.metrics.series import live_series, newest_agent_ttft_ms
from measures.verdict.device_report import sample_texts

CACHED_ATTEMPTS: Final = 8


@dataclass(slots=True)
class _Parsed:
    """Events of one attempt as far as they were read."""

    events: dict[Stream, list[Event]] = field(default_factory=lambda: {s: [] for s in ANALYSED_STREAMS})


class EventCache:
    """Keeps the parsed events of the attempts watched last, so that each look reads only what is new.

    Stored events never change and have no gaps, so the count of a list is the number of its last event.
    """

    def __init__(self, capacity: int = CACHED_ATTEMPTS) -> None:
        """`capacity` is in attempts."""
        self._capacity = capacity
        self._lock = threading.Lock()
        self._attempts: OrderedDict[str, _Parsed] = OrderedDict()

    def __len__(self) -> int:
        """How many attempts are kept."""
        return len(self._attempts)

    def events(self, session: Session, attempt_id: str) -> dict[Stream, list[Event]]:
        """Every stored event of the streams that analysis reads; lists of the caller's own."""
        repository = EventRepository(session)
        with self._lock:
            parsed = self._attempts.pop(attempt_id, None) or _Parsed()
            for stream, known in parsed.events.items():
                known.extend(repository.events(attempt_id, stream, len(known) + 1))
            self._attempts[attempt_id] = parsed
            while len(self._attempts) > self._capacity:
                self._attempts.popitem(last=False)
            return {stream: list(known) for stream, known in parsed.events.items()}


def live_view(session: Session, run_id: str, cache: EventCache) -> LiveView:
    """The newest attempt of the run; a run without one shows its state and nothing else. RunNotFoundError."""
    run = RunRepository(session).get(run_id)
    jobs = JobRepository(session).of_runs([run_id])
    attempt = _newest_attempt(session, [job.job_id for job in jobs])
    if attempt is None:
        total = sum(len(job.spec["trials"]) for job in jobs[:1])
        return LiveView(
            run_id=run_id,
            attempt_id=None,
            state=run.state.value,
            trial=None,
            trials_done=0,
            trials_total=total,
            series=[],
            agent_ttft_ms={},
            sample_texts=[],
        )
    return _attempt_view(session, run_id, attempt, cache)


def _newest_attempt(session: Session, job_ids: list[str]) -> AttemptRow | None:
    """The one that runs, else the one that began last (ids sort by time)."""
    attempts = AttemptRepository(session).of_jobs(job_ids)
    live = [attempt for attempt in attempts if attempt.ended_at is None]
    return max(live or attempts, key=lambda attempt: attempt.attempt_id, default=None)


def _attempt_view(session: Session, run_id: str, attempt: AttemptRow, cache: EventCache) -> LiveView:
    try:
        events = cache.events(session, attempt.attempt_id)
        facts = attempt_facts(events)
        series = live_series(events, facts)
    except (EventLineError, ImpossibleEventsError):
        # The report says what is wrong; a page that looks every second shows no figure.
        facts = AttemptFacts(opened_ns=None, conditions=None, budgets={}, trials=())
        series = []
    done = [trial for trial in facts.trials if trial.finished_ns is not None]
    running = [trial.trial for trial in facts.trials if trial.finished_ns is None]
    return LiveView(
        run_id=run_id,
        attempt_id=attempt.attempt_id,
        state=attempt.state.value,
        trial=running[-1] if running else None,
        trials_done=len(done),
        trials_total=attempt.trials_total,
        series=series,
        agent_ttft_ms=newest_agent_ttft_ms(facts),
        sample_texts=sample_texts(facts, done[-1].arm) if done else [],
    )
