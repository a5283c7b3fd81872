"""A farm for tests: the real protocol on a real database, with a clock that the test moves."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any

from contract.agent_api import (
    ClaimRequest,
    DeviceReport,
    EventBatchHeader,
    EventsAnswer,
    HeldLease,
    Hello,
    HelloAnswer,
    HostHealth,
    Lease,
    RenewAnswer,
    RenewRequest,
    ResultAnswer,
    ResultRequest,
)
from contract.events import Producer, RuntimeStage, Stream, StreamOpened, event_line
from contract.failures import FailureReason
from contract.jobs import ArmSpec, JobSpec, Limits, TrialSpec
from contract.rest import DeviceSelector
from contract.states import JobState, RunState, TargetKind
from contract.version import CONTRACT_VERSION
from contract.workload import AgentPlan, Call, CompiledWorkload, Segment, SegmentPart
from controller.db.migrate import upgrade_opened
from controller.db.models import AgentRow, AttemptRow, DeviceRow, JobRow, RunRow
from controller.db.session import Sessions, open_sessions, read_only, unit_of_work
from controller.db.unit_of_work import UnitOfWork
from controller.ingest.batch import Batch
from controller.ingest.store import store_batch
from controller.protocol.hello import hello
from controller.protocol.leases import WaitingClaim, claim, close_claims, renew
from controller.protocol.results import finish
from controller.protocol.sweep import SweepCounts, sweep
from controller.states.times import FarmTimes

START = datetime(2026, 11, 29, 12, tzinfo=UTC)
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def make_tables(sessions: Sessions) -> None:
    """Every table, as the migrations make it; on SQLite their statements are repeated, which is quick."""
    if sessions.engine.dialect.name != "sqlite":
        upgrade_opened(sessions)
        return
    with sessions.engine.begin() as connection:
        for statement in _migrated_schema():
            connection.exec_driver_sql(statement)


@cache
def _migrated_schema() -> tuple[str, ...]:
    """What SQLite holds of each table and index after the migrations, in the order of their making."""
    sessions = open_sessions("sqlite://")
    upgrade_opened(sessions)
    with sessions.engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        )
        statements = tuple(row[0] for row in rows)
    sessions.close()
    return statements


def fixed_id(prefix: str, number: int) -> str:
    """A valid id that a test can write down: `run_…0007`."""
    digits = ""
    while number:
        number, digit = divmod(number, 32)
        digits = _CROCKFORD[digit] + digits
    return f"{prefix}_{digits.rjust(26, '0')}"


def spec_template(run_id: str, job_id: str, limits: Limits | None = None) -> dict[str, Any]:
    """What a job keeps."""
    workload = CompiledWorkload(
        name="tiny",
        version=1,
        digest="sha256:" + "0" * 64,
        params={},
        segments=[Segment(segment_id="s", text="hello")],
        agents=[AgentPlan(agent="a", calls=[Call(parts=[SegmentPart(segment_id="s")], max_output_tokens=4)])],
    )
    spec = JobSpec(
        job_id=job_id,
        run_id=run_id,
        model="tiny",
        workload=workload,
        arms=[ArmSpec(arm="serial", mode="serial"), ArmSpec(arm="paged", mode="paged")],
        trials=[TrialSpec(trial=1, arm="serial", pair=1), TrialSpec(trial=2, arm="paged", pair=1)],
        limits=limits or Limits(),
    )
    return spec.model_dump(mode="json")


def opening(attempt_id: str, stream: Stream = Stream.CONTROL) -> bytes:
    """The first line of a stream."""
    event = StreamOpened(
        seq=1,
        t_mono_ns=0,
        stream=stream,
        contract_version=CONTRACT_VERSION,
        attempt_id=attempt_id,
        producer=Producer(name="test", version="1"),
        t_wall=START,
    )
    return event_line(event)


def control_lines(attempt_id: str, count: int, first_seq: int = 1, mark: int = 0) -> list[bytes]:
    """Events first_seq, first_seq + 1, … of a control stream; `mark` makes them differ from others."""
    return [
        opening(attempt_id)
        if seq == 1
        else event_line(RuntimeStage(seq=seq, t_mono_ns=seq, stage="weights", duration_ns=mark))
        for seq in range(first_seq, first_seq + count)
    ]


@dataclass
class Farm:
    """One controller. Every method is one call in one transaction at the time `now`."""

    database_url: str = "sqlite://"
    times: FarmTimes = field(default_factory=FarmTimes)
    now: datetime = START
    made: int = 0

    def __post_init__(self) -> None:
        """Make the tables."""
        self.sessions = open_sessions(self.database_url)
        self.chance = Random(7)
        make_tables(self.sessions)

    def pass_time(self, seconds: float) -> None:
        """Move the clock; nothing else happens."""
        self.now += timedelta(seconds=seconds)

    @contextmanager
    def unit_of_work(self) -> Iterator[UnitOfWork]:
        """A unit of work now."""
        with unit_of_work(self.sessions) as session:
            yield UnitOfWork(session, self.now, self.times, self.chance)

    def number(self) -> int:
        """A number that was not used before."""
        self.made += 1
        return self.made

    # --- what people do

    def add_run(self, *selectors: DeviceSelector, **job_fields: Any) -> tuple[str, list[str]]:
        """A run with a job per selector; returns its id and theirs. `limits`: of the attempts."""
        limits = job_fields.pop("limits", None)
        run_id = fixed_id("run", self.number())
        job_ids = [fixed_id("job", self.number()) for _ in selectors]
        with self.unit_of_work() as work:
            work.session.add(
                RunRow(
                    run_id=run_id,
                    state=RunState.ACTIVE,
                    request={},
                    workload="tiny",
                    workload_digest="sha256:" + "0" * 64,
                    model="tiny",
                    labels={},
                    principal="test",
                    created_at=self.now,
                )
            )
            work.session.flush()
            for position, (job_id, selector) in enumerate(zip(job_ids, selectors, strict=True)):
                fields = {
                    "priority": 5,
                    "max_attempts": 3,
                    "queue_deadline": work.after(86_400),
                    **job_fields,
                }
                work.session.add(
                    JobRow(
                        job_id=job_id,
                        run_id=run_id,
                        position=position,
                        selector=selector.model_dump(mode="json"),
                        model="tiny",
                        spec=spec_template(run_id, job_id, limits),
                        state=JobState.QUEUED,
                        attempts_used=0,
                        excluded_devices=[],
                        created_at=self.now,
                        **fields,
                    )
                )
        return run_id, job_ids

    def add_job(self, **job_fields: Any) -> str:
        """One job that any host may run."""
        return self.add_run(DeviceSelector(), **job_fields)[1][0]

    # --- what agents do

    def add_agent(self, name: str = "agent") -> str:
        """An agent that has enrolled; returns its id."""
        device_agent_id = fixed_id("agt", self.number())
        with self.unit_of_work() as work:
            work.session.add(
                AgentRow(
                    device_agent_id=device_agent_id,
                    name=f"{name}-{self.made}",
                    contract_version=CONTRACT_VERSION,
                    created_at=self.now,
                    last_seen_at=self.now,
                )
            )
        return device_agent_id

    def hello(
        self,
        device_agent_id: str,
        *devices: DeviceReport | str,
        leases: tuple[Lease, ...] = (),
        **fields: Any,
    ) -> HelloAnswer:
        """A full report; a device given by its id is ready."""
        reports = [device if isinstance(device, DeviceReport) else report(device) for device in devices]
        held = [
            HeldLease(lease_id=lease.lease_id, attempt_id=lease.attempt_id, fence=lease.fence)
            for lease in leases
        ]
        values: dict[str, Any] = {
            "agent_version": "1",
            "sent_at": self.now,
            "health": HostHealth(disk_free_bytes=1, open_files=1, resident_bytes=1, spool_backlog_events=0),
            "devices": reports,
            "leases": held,
            **fields,
        }
        with self.unit_of_work() as work:
            return hello(work, device_agent_id, Hello(**values))

    def claim(self, device_agent_id: str, *device_ids: str, claim_id: str | None = None) -> Lease | None:
        """Ask once, without waiting."""
        request = ClaimRequest(
            claim_id=claim_id or fixed_id("clm", self.number()), devices=list(device_ids), wait_s=0
        )
        with self.unit_of_work() as work:
            return claim(work, device_agent_id, request)

    def close_claim(self, device_agent_id: str, claim_id: str) -> Lease | None:
        """End a claim that got nothing, as the route does; the lease when it was granted one meanwhile."""
        with self.unit_of_work() as work:
            if not close_claims(work, [WaitingClaim(claim_id, device_agent_id, ("d1",))]):
                return None
        return self.claim(device_agent_id, "d1", claim_id=claim_id)

    def granted(self, device_agent_id: str, *device_ids: str) -> Lease:
        """A claim that must be granted."""
        lease = self.claim(device_agent_id, *device_ids)
        assert lease is not None
        return lease

    def renew(self, device_agent_id: str, lease: Lease, phase: str = "running", **fields: Any) -> RenewAnswer:
        """Renew and report a phase."""
        values = {"fence": lease.fence, "phase": phase, "sent_at": self.now, **fields}
        with self.unit_of_work() as work:
            return renew(work, device_agent_id, lease.lease_id, RenewRequest(**values))

    def upload(
        self, device_agent_id: str, lease: Lease, lines: list[bytes], first_seq: int = 1, **fields: Any
    ) -> EventsAnswer:
        """Send lines of a stream, control unless told otherwise."""
        values = {
            "stream": Stream.CONTROL,
            "first_seq": first_seq,
            "count": len(lines),
            "fence": lease.fence,
            "sent_at": self.now,
            **fields,
        }
        with self.unit_of_work() as work:
            batch = Batch(EventBatchHeader(**values), tuple(lines))
            return store_batch(work, device_agent_id, lease.attempt_id, batch)

    def finish(
        self, device_agent_id: str, lease: Lease, outcome: str = "succeeded", **fields: Any
    ) -> ResultAnswer:
        """Send a result that names one control event for a success, none otherwise."""
        values: dict[str, Any] = {
            "fence": lease.fence,
            "outcome": outcome,
            "last_seq": {Stream.CONTROL: 1} if outcome == "succeeded" else {},
            **fields,
        }
        with self.unit_of_work() as work:
            return finish(work, device_agent_id, lease.attempt_id, ResultRequest(**values))

    def succeed(self, device_agent_id: str, lease: Lease) -> ResultAnswer:
        """Upload one event and finish."""
        self.upload(device_agent_id, lease, control_lines(lease.attempt_id, 1))
        return self.finish(device_agent_id, lease)

    def fail(self, device_agent_id: str, lease: Lease, reason: FailureReason) -> ResultAnswer:
        """The farm failed, says the agent."""
        return self.finish(device_agent_id, lease, "errored", reason=reason)

    # --- what time does

    def sweep(self) -> SweepCounts:
        """Enforce every deadline."""
        with self.unit_of_work() as work:
            return sweep(work)

    # --- what the books say

    def job(self, job_id: str) -> JobRow:
        """As it is stored now."""
        with read_only(self.sessions) as session:
            return session.get_one(JobRow, job_id)

    def attempt(self, lease: Lease) -> AttemptRow:
        """As it is stored now."""
        with read_only(self.sessions) as session:
            return session.get_one(AttemptRow, lease.attempt_id)

    def device(self, device_id: str) -> DeviceRow:
        """As it is stored now."""
        with read_only(self.sessions) as session:
            return session.get_one(DeviceRow, device_id)

    def run(self, run_id: str) -> RunRow:
        """As it is stored now."""
        with read_only(self.sessions) as session:
            return session.get_one(RunRow, run_id)


def report(device_id: str, *reasons: str, **fields: Any) -> DeviceReport:
    """A host with the model `tiny`; ready unless a reason is given."""
    values: dict[str, Any] = {
        "device_id": device_id,
        "kind": TargetKind.HOST,
        "generation": 1,
        "ready": not reasons,
        "reasons": list(reasons),
        "device_model": "box",
        "os_name": "Linux",
        "os_version": "6",
        "models": ["tiny"],
        **fields,
    }
    return DeviceReport(**values)
