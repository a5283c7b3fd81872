"""What people submitted and what became of it: run, job, attempt, lease, claim."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from contract.failures import FailureReason
from contract.states import AttemptState, JobOutcome, JobState, RunOutcome, RunState
from controller.db.models.columns import CompressedJson, Row, UtcDateTime, WordText


class RunRow(Row):
    """A submitted benchmark. `request`: the RunRequest as it came; `workload_digest`: what it became."""

    __tablename__ = "runs"

    run_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    state: Mapped[RunState] = mapped_column(WordText(RunState), index=True)
    outcome: Mapped[RunOutcome | None] = mapped_column(WordText(RunOutcome))
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    workload: Mapped[str] = mapped_column(String(64))
    workload_digest: Mapped[str] = mapped_column(String(80))
    model: Mapped[str] = mapped_column(String(64))
    labels: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    principal: Mapped[str] = mapped_column(String(200))
    """Who submitted it."""
    gate: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """The GateView, once the run is completed."""
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    completed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class JobRow(Row):
    """One cell of a run for one device: tried until it is done.

    `spec` is a JobSpec as JSON; `controller.db.job_specs` reads it.
    """

    __tablename__ = "jobs"
    __table_args__ = (Index(None, "state", "priority", "created_at"), Index(None, "run_id", "position"))

    job_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id"))
    position: Mapped[int]
    """Place in the run's matrix, from 0."""
    variant: Mapped[str] = mapped_column(String(200), default="")
    selector: Mapped[dict[str, Any]] = mapped_column(JSON)
    """A DeviceSelector."""
    model: Mapped[str] = mapped_column(String(64))
    spec: Mapped[dict[str, Any]] = mapped_column(CompressedJson, deferred=True)
    """Read only where it is asked for: it is large, and lists and placement work on the other columns."""
    state: Mapped[JobState] = mapped_column(WordText(JobState))
    outcome: Mapped[JobOutcome | None] = mapped_column(WordText(JobOutcome))
    priority: Mapped[int]
    waiting_reason: Mapped[str] = mapped_column(Text, default="")
    """Empty: views say it as of now. Controllers of version 0.1 still read and write the column."""
    excluded_devices: Mapped[list[str]] = mapped_column(JSON, default=list)
    attempts_used: Mapped[int] = mapped_column(default=0)
    max_attempts: Mapped[int]
    not_before: Mapped[datetime | None] = mapped_column(UtcDateTime)
    queue_deadline: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    done_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class AttemptRow(Row):
    """One try of a job on one device. Terminal states set `ended_at`; `lost` may be salvaged after it."""

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        UniqueConstraint("device_id", "fence"),
        Index(None, "ended_at", "phase_deadline"),
    )

    attempt_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id"))
    number: Mapped[int]
    state: Mapped[AttemptState] = mapped_column(WordText(AttemptState), index=True)
    reason: Mapped[FailureReason | None] = mapped_column(WordText(FailureReason))
    detail: Mapped[str] = mapped_column(Text, default="")
    device_id: Mapped[str] = mapped_column(ForeignKey("devices.device_id"))
    device_agent_id: Mapped[str] = mapped_column("agent_id", ForeignKey("agents.agent_id"))
    fence: Mapped[int] = mapped_column(BigInteger)
    device_generation: Mapped[int] = mapped_column(BigInteger)
    limits: Mapped[dict[str, float]] = mapped_column(JSON)
    calibrations: Mapped[dict[str, dict[str, Any]]] = mapped_column(JSON, default=dict, server_default="{}")
    """Per arm the Calibration that it was granted with: a repeated claim gets the same again."""
    trials_done: Mapped[int] = mapped_column(default=0)
    trials_total: Mapped[int]
    salvaged: Mapped[bool] = mapped_column(Boolean, default=False)
    last_seq: Mapped[dict[str, int] | None] = mapped_column(JSON)
    """Per stream, the last event of the accepted result; None until one was accepted."""
    phase_deadline: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_event_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    state_since: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class LeaseRow(Row):
    """The right to use a device. Live while `released_at` is None and `expires_at` lies ahead.

    A partial unique index lets the database itself refuse a second live lease on a device.
    """

    __tablename__ = "leases"
    __table_args__ = (
        Index(None, "released_at", "expires_at"),
        Index(
            "uq_leases_live_device",
            "device_id",
            unique=True,
            sqlite_where=text("released_at IS NULL"),
            postgresql_where=text("released_at IS NULL"),
        ),
    )

    lease_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.attempt_id"), unique=True)
    device_id: Mapped[str] = mapped_column(ForeignKey("devices.device_id"))
    device_agent_id: Mapped[str] = mapped_column("agent_id", ForeignKey("agents.agent_id"), index=True)
    fence: Mapped[int] = mapped_column(BigInteger)
    granted_at: Mapped[datetime] = mapped_column(UtcDateTime)
    renewed_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    released_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class ClaimRow(Row):
    """What a claim was answered: the same claim_id gets it again. lease_id None: there was nothing."""

    __tablename__ = "claims"

    claim_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    device_agent_id: Mapped[str] = mapped_column("agent_id", ForeignKey("agents.agent_id"))
    lease_id: Mapped[str | None] = mapped_column(ForeignKey("leases.lease_id"))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
