"""A run whose whole story is known, told further at every look. Its figures are the analysis's own."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from contract.events import Event, Stream, event_line
from contract.jobs import ArmSpec, TrialSpec
from contract.rest import AttemptView, GateView, JobView, LiveView, RunReport, RunRequest, RunView
from contract.states import AttemptState, JobOutcome, JobState, RunOutcome, RunState, TargetKind
from measures.facts.reader import attempt_facts
from measures.metrics.samples import samples_of
from measures.metrics.series import live_series, newest_agent_ttft_ms
from measures.statistics.order import Design, plan_trials
from measures.verdict.device_report import DeviceIdentity, device_report, sample_texts
from measures.verdict.gate import JobStanding, gate_view, run_outcome
from measures.verdict.metric_verdicts import ComparisonPlan, Measured, verdicts
from tests.fakes.attempt_story import AttemptStory, CallStory, TrialStory

DEVICE_ID = "host-1"
AGENT_ID = "agt_00000000000000000000000001"
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Script:
    """How a run goes. wall_ms: per arm; polls: looks until it is done; outcome: its job's.

    unrest: the candidate takes by this share more and less in turn, from pair to pair.
    """

    wall_ms: dict[str, float] = field(default_factory=lambda: {"serial": 1000.0, "paged": 400.0})
    polls: int = 2
    outcome: JobOutcome = JobOutcome.SUCCEEDED
    text: str = "the agents wrote this"
    unrest: float = 0.0


@dataclass
class ScriptedRun:
    """One run of one job with one attempt on DEVICE_ID, told as far as `looks` says."""

    number: int
    request: RunRequest
    script: Script
    base_url: str
    looks: int = 0
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.run_id, self.job_id, self.attempt_id = (
            f"{kind}_{self.number:026d}" for kind in ("run", "job", "att")
        )
        arms = (self.request.baseline, self.request.candidate)
        planned = plan_trials(arms, self.request.repetitions, self.request.warmups, 0, Design.ABBA)
        trials = [TrialSpec(trial=t.position, arm=t.arm, pair=t.pair, warmup=t.warmup) for t in planned]
        specs = [ArmSpec(arm=arm.arm, mode=arm.mode) for arm in self.request.arms]
        self.plan = ComparisonPlan(specs, arms[0], arms[1], trials, self.request.gate, 0)
        self._story = self._told()

    def look(self) -> None:
        """Time passes."""
        self.looks += 1

    @property
    def outcome(self) -> JobOutcome | None:
        """None while it goes on."""
        if self.cancelled:
            return JobOutcome.CANCELLED
        return self.script.outcome if self.looks >= self.script.polls else None

    @property
    def run_outcome(self) -> RunOutcome | None:
        return run_outcome([self._standing()]) if self.outcome is not None else None

    def events(self, stream: Stream) -> list[Event]:
        """What is stored by now."""
        if self.script.outcome is JobOutcome.EXPIRED:
            return []
        events = self._story.events[stream]
        if self.outcome is not None:
            return events
        return events[: len(events) * self.looks // self.script.polls]

    def tell(self, events: dict[Stream, list[Event]]) -> None:
        """From now on these are the attempt's events: those of a runtime that really ran."""
        self._story.events = events

    def written_lines(self) -> bytes:
        """The runtime's own file: three streams, one line an event."""
        streams = (Stream.CONTROL, Stream.SAMPLES, Stream.LOG)
        return b"".join(
            event_line(event) + b"\n" for stream in streams for event in self._story.events[stream]
        )

    def view(self) -> RunView:
        done = self.outcome is not None
        return RunView(
            run_id=self.run_id,
            state=RunState.COMPLETED if done else RunState.ACTIVE,
            outcome=self.run_outcome,
            workload=self.request.workload.name or "own",
            workload_digest="sha256:" + "0" * 64,
            model=self.request.model,
            build=self.request.build,
            baseline=self.request.baseline,
            candidate=self.request.candidate,
            labels=self.request.labels,
            created_at=_START,
            completed_at=_START if done else None,
            jobs=[self.job()],
            report_url=f"{self.base_url}/dashboard/runs/{self.run_id}",
        )

    def job(self) -> JobView:
        has_attempt = self.looks > 0 and self.script.outcome is not JobOutcome.EXPIRED
        return JobView(
            job_id=self.job_id,
            run_id=self.run_id,
            state=JobState.DONE if self.outcome else JobState.RUNNING if has_attempt else JobState.QUEUED,
            outcome=self.outcome,
            selector=self.request.selectors[0],
            variant="",
            waiting_reason="" if has_attempt or self.outcome else "no device is free",
            attempts=[self.attempt()] if has_attempt else [],
        )

    def attempt(self) -> AttemptView:
        done = self.outcome is not None
        return AttemptView(
            attempt_id=self.attempt_id,
            job_id=self.job_id,
            number=1,
            state=AttemptState.SUCCEEDED if done else AttemptState.RUNNING,
            reason=None,
            detail="",
            device_id=DEVICE_ID,
            device_agent_id=AGENT_ID,
            trials_done=self._trials_done(),
            trials_total=len(self.plan.trials),
            next_seq={stream.value: len(self.events(stream)) + 1 for stream in Stream},
            created_at=_START,
            ended_at=_START if done else None,
        )

    def report(self) -> RunReport:
        identity = DeviceIdentity(self.job_id, "", DEVICE_ID, "testhost", "6.1", TargetKind.HOST, False)
        measured = self._measured()
        has_device = bool(self.job().attempts)
        device = device_report(identity, self.plan, measured, verdicts(self.plan, measured), None)
        view = self.view()
        return RunReport(
            run_id=self.run_id,
            workload=view.workload,
            model=view.model,
            state=view.state,
            outcome=view.outcome,
            baseline=view.baseline,
            candidate=view.candidate,
            devices=[device] if has_device else [],
            gate=self.gate(),
            report_url=view.report_url,
        )

    def gate(self) -> GateView:
        return gate_view([self._standing()], self.request.gate)

    def live(self) -> LiveView:
        measured = self._measured()
        has_attempt = bool(self.job().attempts)
        return LiveView(
            run_id=self.run_id,
            attempt_id=self.attempt_id if has_attempt else None,
            state="completed" if self.outcome else "running",
            trial=self._trials_done() or None,
            trials_done=self._trials_done(),
            trials_total=len(self.plan.trials),
            series=live_series({stream: self.events(stream) for stream in Stream}, measured.facts),
            agent_ttft_ms=newest_agent_ttft_ms(measured.facts),
            sample_texts=sample_texts(measured.facts, self.plan.candidate),
        )

    def _standing(self) -> JobStanding:
        measured = self._measured()
        judged = verdicts(self.plan, measured) if self.outcome is JobOutcome.SUCCEEDED else {}
        return JobStanding(DEVICE_ID, self.outcome, None, judged)

    def _measured(self) -> Measured:
        facts = attempt_facts({stream: self.events(stream) for stream in Stream})
        samples = [sample for trial in facts.trials for sample in samples_of(trial)]
        return Measured(facts, samples, ended=self.outcome is not None)

    def _trials_done(self) -> int:
        return sum(event.type == "trial_finished" for event in self.events(Stream.CONTROL))

    def _told(self) -> AttemptStory:
        story = AttemptStory(attempt_id=self.attempt_id)
        story.conditions()
        for arm in self.plan.arms:
            story.budget(arm.arm)
        for planned in self.plan.trials:
            story.trial(self._trial(planned))
        story.control("runtime_finished", status="completed")
        return story

    def _trial(self, planned: TrialSpec) -> TrialStory:
        """Noise from pair to pair, so that a spread is none of a point."""
        noise = 1.0 + 0.002 * ((planned.pair or 0) % 3)
        is_candidate = planned.arm == self.request.candidate
        if is_candidate:
            noise += self.script.unrest * (-1) ** (planned.pair or 0)
        wall_ms = self.script.wall_ms[planned.arm] * noise
        cached = 80 if is_candidate else 0
        token_ms = [wall_ms * share for share in (0.5, 0.7, 0.9)]
        calls = [
            CallStory(agent, token_ms=token_ms, cached_tokens=cached, text=self.script.text)
            for agent in ("agent-1", "agent-2")
        ]
        return TrialStory(
            planned.trial,
            planned.arm,
            planned.pair,
            calls=calls,
            finished_ms=wall_ms,
            footprint_bytes=450_000_000 if cached else 500_000_000,
            warmup=planned.warmup,
        )
