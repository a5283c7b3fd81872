"""Rounds of trials in this process, each an attempt: arms interleaved, contaminated runs repeated."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.bench import BenchRequest
from contract.events import Conditions, MemoryBudgeted
from contract.jobs import ArmMode, ArmSpec, AttemptSpec, TrialSpec
from contract.runtime_link import EVENTS_FILE, LEASE_FILE, LeaseFile
from contract.workload import CompiledWorkload
from runtime.bench.recording import WITHOUT_EVENTS, BenchEmitter, BenchRecorder, EndedTrial
from runtime.bench.seeded_ids import seeded_prompts
from runtime.bench.trial_events import AttemptEvents, TrialEvents, read_attempt
from runtime.errors import BadAttemptSpecError, LeaseExpiredError
from runtime.host.others import OthersMeter
from runtime.measured.attempt import Attempt, AttemptParts
from runtime.measured.conditions import producer
from runtime.measured.errors import CancelledError
from runtime.measured.watchdog import Watchdog

_ZEROS: Final = "0" * 26
ARM_MODES: Final[Mapping[str, ArmMode]] = {
    "serial": "serial",
    "serial-cached": "serial_cached",
    "paged": "paged",
    WITHOUT_EVENTS: "paged",
}
"""Arms in the order in which an odd round runs them; an even one runs them the other way round."""

Tell = Callable[[str], None]
AfterRound = Callable[[Conditions], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One trial with what others did meanwhile. round: from 1. events_ns: as EndedTrial's."""

    arm: str
    round: int
    events: TrialEvents
    others_cpu_percent: float
    events_ns: int | None = None


@dataclass(slots=True)
class Measured:
    """What the rounds left. budgets by arm, of the last round that ran it."""

    runs: list[Run] = field(default_factory=list)
    budgets: dict[str, MemoryBudgeted] = field(default_factory=dict)
    conditions: Conditions | None = None


class BenchSession:
    """Runs what `request` asks for with the model at `model_path`; files go to `folder` and are removed."""

    def __init__(self, request: BenchRequest, model_path: Path, folder: Path, tell: Tell) -> None:
        self._request = request
        self._model_path = model_path
        self._folder = folder
        self._tell = tell
        self._deadline_s = time.monotonic() + request.limit_s
        self._watchdog: Watchdog | None = None
        self._cancelled = False
        self.meter = OthersMeter()

    def cancel(self) -> None:
        """The step that runs is the last; takes no lock, so a signal handler may call it."""
        self._cancelled = True
        if self._watchdog is not None:
            self._watchdog.cancel()

    def close(self) -> None:
        """Ends the meter."""
        self.meter.close()

    def check(self) -> None:
        """CancelledError after `cancel`; BadAttemptSpecError past the request's limit."""
        if self._cancelled:
            raise CancelledError("somebody asked for it")
        if time.monotonic() > self._deadline_s:
            raise self._too_late()

    def _too_late(self) -> BadAttemptSpecError:
        return BadAttemptSpecError("limit_s", f"not all was measured within {self._request.limit_s:g} s")

    def measure(
        self, workload: CompiledWorkload, wanted: Mapping[str, int], after_round: AfterRound
    ) -> Measured:
        """Rounds until every arm has as many clean runs as wanted, or the extra rounds are used up.

        Raises what an attempt of the runtime raises, and as `check`.
        """
        measured = Measured()
        rounds_max = max(wanted.values(), default=0) + self._request.extra_rounds
        for number in range(1, rounds_max + 1):
            due = [arm for arm in ARM_MODES if self._is_due(arm, wanted.get(arm, 0), measured)]
            if not due:
                break
            self.wait_for_quiet()
            self._tell(f"round {number} (at most {rounds_max}): {', '.join(due)}")
            self._run_round(number, workload, due if number % 2 else due[::-1], measured)
            if measured.conditions is not None:
                after_round(measured.conditions)
        return measured

    def wait_for_quiet(self) -> None:
        """Returns when others are quiet or the request's patience is over."""
        self.check()
        request = self._request
        if request.quiet_wait_s == 0:
            return
        if not self.meter.wait_for_quiet(request.others_cpu_percent_max, request.quiet_wait_s):
            self._tell(f"the machine is not quiet after {request.quiet_wait_s:g} s; going on")
        self.check()

    def _is_due(self, arm: str, wanted: int, measured: Measured) -> bool:
        others = [run.others_cpu_percent for run in measured.runs if run.arm == arm]
        clean = sum(percent <= self._request.others_cpu_percent_max for percent in others)
        return clean < wanted and len(others) < wanted + self._request.extra_rounds

    def _run_round(self, number: int, workload: CompiledWorkload, due: list[str], measured: Measured) -> None:
        ended: list[tuple[EndedTrial, float]] = []
        attempt = self._run_attempt(self._spec(workload, due), ended)
        if len(ended) != len(due) or any(trial.facts.finished_ns is None for trial in attempt.trials):
            raise BadAttemptSpecError("workload", "a trial did not reach its end")
        for events, (trial, percent) in zip(attempt.trials, ended, strict=True):
            measured.runs.append(Run(trial.arm, number, events, percent, trial.events_ns))
        measured.budgets.update(attempt.budgets)
        measured.conditions = attempt.conditions

    def _run_attempt(self, spec: AttemptSpec, ended: list[tuple[EndedTrial, float]]) -> AttemptEvents:
        """Runs the trials; each is appended to `ended` with the share of others in it."""

        def trial_ended(trial: EndedTrial) -> None:
            percent = self.meter.percent(trial.start_ns, trial.end_ns)
            ended.append((trial, percent))
            wall_s = (trial.end_ns - trial.start_ns) / 1e9
            self._tell(f"  {trial.arm}: {wall_s:.2f} s, others used {percent:.1f} % of the machine")

        with self._attempt_folder() as folder:
            emitter = BenchEmitter(folder / EVENTS_FILE, spec.attempt_id, producer("unknown"), trial_ended)
            self._watchdog = Watchdog(folder / LEASE_FILE, on_hang=lambda: None)
            try:
                self.check()
                parts = AttemptParts(
                    prompts=lambda segments, tokenizer: seeded_prompts(
                        segments, self._request.seed, tokenizer.vocab_size
                    ),
                    recorder=BenchRecorder,
                )
                failed = Attempt(spec, self._model_path, emitter, self._watchdog, parts).run()
            except LeaseExpiredError as late:
                # The lease is our own, and ends with the request's time.
                raise self._too_late() from late
            finally:
                self._watchdog.close()
                self._watchdog = None
                emitter.close()
            if failed is not None:
                raise BadAttemptSpecError("workload", f"trial {failed.trial}: {failed.detail}")
            return read_attempt(folder / EVENTS_FILE)

    @contextmanager
    def _attempt_folder(self) -> Iterator[Path]:
        folder = self._folder / "attempt"
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        deadline_ns = time.monotonic_ns() + round(max(1.0, self._deadline_s - time.monotonic()) * 1e9)
        (folder / LEASE_FILE).write_text(LeaseFile(deadline_mono_ns=deadline_ns).model_dump_json())
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _spec(self, workload: CompiledWorkload, due: list[str]) -> AttemptSpec:
        arms = [ArmSpec(arm=arm, mode=ARM_MODES[arm], engine=self._request.engine) for arm in due]
        return AttemptSpec(
            attempt_id=f"att_{_ZEROS}",
            job_id=f"job_{_ZEROS}",
            run_id=f"run_{_ZEROS}",
            model="measured",
            workload=workload,
            arms=arms,
            trials=[TrialSpec(trial=place, arm=arm, pair=1) for place, arm in enumerate(due, start=1)],
        )
