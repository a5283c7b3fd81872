"""One simulated farm, and the invariants that it must keep.

I1 one verdict per job. I2 never two executions on one device. I3 an accepted attempt has exactly the events
1 to n that its runtime wrote. I4 all jobs end. I5 one live lease per device.
"""

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import func, select

from contract.events import Stream
from contract.jobs import Limits
from contract.states import AttemptState, JobOutcome, JobState
from controller.db.events import EventRepository
from controller.db.models import AttemptRow, JobRow, LeaseRow
from controller.db.session import read_only
from controller.protocol.operators import cancel_job
from controller.states.times import FarmTimes
from tests.controller.farm import Farm
from tests.controller.protocol.sim_agent import SimAgent
from tests.controller.protocol.world import BrokenInvariantError, Device, Weather, World

TIMES = FarmTimes(agent_offline_s=60.0, absent_after_s=15.0, retry_backoff_s=2.0, limit_grace_s=10.0)
END_S = 2400.0
# Simulated runtimes write few events; a stall would end attempts that nothing is wrong with.
_NO_STALL = Limits(stall_s=3600)
_VERDICTS = (AttemptState.SUCCEEDED, AttemptState.FAILED)


@dataclass(frozen=True)
class Outline:
    """What a simulation did, to show that it did anything."""

    attempts: Counter[str]
    jobs: Counter[str]
    salvaged: int
    errors_seen: frozenset[str]


class Simulation:
    """Jobs, devices that two agents each can see, and trouble until the weather is calm."""

    def __init__(
        self, seed: int, weather: Weather | None = None, jobs: int = 4, database_url: str = "sqlite://"
    ) -> None:
        """The same seed gives the same run."""
        self.world = World(seed, weather or Weather(), Farm(database_url, TIMES))
        chance = self.world.chance
        devices = [Device(f"d{number}") for number in range(3)]
        self.agents = []
        for number in range(3):
            name = f"agent-{number}"
            error = self.world.weather.clock_error
            self.agents.append(
                SimAgent(
                    world=self.world,
                    name=name,
                    device_agent_id=self.world.farm.add_agent(name),
                    sees=[devices[number], devices[(number + 1) % 3]],
                    drift=chance.uniform(-error, error),
                )
            )
        self.job_ids = [
            self.world.farm.add_job(
                max_attempts=chance.randint(2, 5), priority=chance.randint(0, 9), limits=_NO_STALL
            )
            for _ in range(jobs)
        ]
        self._seen: dict[str, JobOutcome] = {}
        self._over = False

    def run(self) -> Outline:
        """Until all jobs are done and all results delivered; BrokenInvariantError where one is broken."""
        world = self.world
        for agent in self.agents:
            world.after(world.chance.uniform(0, 5), agent.start)
            self._plan_trouble(agent)
        world.after(world.chance.uniform(10, 200), self._cancel_one)
        world.after(1.0, self._sweep)
        world.run(END_S, lambda: self._over)
        self._require(self._over, "I4: a job did not end")
        return self._outline()

    def _plan_trouble(self, agent: SimAgent) -> None:
        world = self.world
        when_s = world.chance.expovariate(1 / world.weather.crash_every_s)
        while when_s < world.weather.calm_after_s:
            world.at(when_s, agent.crash if world.chance.random() < 0.5 else lambda: world.cut(agent.name))
            when_s += world.chance.expovariate(1 / world.weather.crash_every_s)

    def _cancel_one(self) -> None:
        with self.world.farm.unit_of_work() as work:
            cancel_job(work, self.job_ids[0])

    def _sweep(self) -> None:
        self.world.farm.sweep()
        self._check()
        self._over = self._is_over()
        self.world.after(15.0, self._sweep)

    def _is_over(self) -> bool:
        with read_only(self.world.farm.sessions) as session:
            open_job = session.scalar(select(JobRow.job_id).where(JobRow.state != JobState.DONE).limit(1))
        idle = all(work.delivered and not work.running for agent in self.agents for work in agent.works)
        return open_job is None and idle

    def _require(self, holds: bool, broken: str) -> None:
        if not holds:
            raise BrokenInvariantError(broken)

    def _check(self) -> None:
        with read_only(self.world.farm.sessions) as session:
            doubled = session.execute(
                select(LeaseRow.device_id)
                .where(LeaseRow.released_at.is_(None))
                .group_by(LeaseRow.device_id)
                .having(func.count() > 1)
            ).first()
            self._require(doubled is None, "I5: two live leases on one device")
            verdicts = Counter(
                session.scalars(select(AttemptRow.job_id).where(AttemptRow.state.in_(_VERDICTS)))
            )
            self._require(all(n == 1 for n in verdicts.values()), "I1: two attempts of a job were accepted")
            for job in session.scalars(select(JobRow).where(JobRow.outcome.is_not(None))):
                self._check_verdict(job, verdicts[job.job_id])
            for attempt in session.scalars(select(AttemptRow).where(AttemptRow.last_seq.is_not(None))):
                stored = list(EventRepository(session).lines(attempt.attempt_id, Stream.CONTROL))
                self._check_events(attempt.attempt_id, stored)

    def _check_verdict(self, job: JobRow, verdicts: int) -> None:
        assert job.outcome is not None
        before = self._seen.get(job.job_id)
        changed = before is not None and before is not job.outcome
        self._require(not changed or before is JobOutcome.INFRA_FAILED, f"I1: {before} became {job.outcome}")
        self._seen[job.job_id] = job.outcome
        has_verdict = job.outcome in {JobOutcome.SUCCEEDED, JobOutcome.FAILED}
        self._require(
            has_verdict == (verdicts == 1) or job.outcome is JobOutcome.CANCELLED,
            f"I1: the job is {job.outcome} by {verdicts} accepted attempts",
        )

    def _check_events(self, attempt_id: str, stored: list[tuple[int, bytes]]) -> None:
        work = next(
            work for agent in self.agents for work in agent.works if work.lease.attempt_id == attempt_id
        )
        written = list(enumerate(work.spool[: work.written], 1))
        self._require(stored == written, f"I3: {attempt_id} has other events than its runtime wrote")

    def _outline(self) -> Outline:
        with read_only(self.world.farm.sessions) as session:
            attempts = list(session.scalars(select(AttemptRow)))
            jobs = list(session.scalars(select(JobRow)))
        return Outline(
            attempts=Counter(attempt.state.value for attempt in attempts),
            jobs=Counter(job.outcome.value for job in jobs if job.outcome is not None),
            salvaged=sum(attempt.salvaged for attempt in attempts),
            errors_seen=frozenset(self.world.errors_seen),
        )
