"""First tables."""

import sqlalchemy as sa
from alembic import op

revision: str = "9a3d2cb2373b"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    # Rather fail than stand in front of everybody else's transactions (docs/adr/0007).
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "agents",
        sa.Column("agent_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("agent_version", sa.Text(), nullable=False),
        sa.Column("contract_version", sa.String(length=16), nullable=False),
        sa.Column("drain", sa.Boolean(), nullable=False),
        sa.Column("health", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_hello_sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_agents")),
        sa.UniqueConstraint("name", name=op.f("uq_agents_name")),
    )
    op.create_index(op.f("ix_agents_last_seen_at"), "agents", ["last_seen_at"], unique=False)
    op.create_table(
        "audit",
        sa.Column(
            "audit_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("principal", sa.String(length=200), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("audit_id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_subject_audit_id"), "audit", ["subject", "audit_id"], unique=False)
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("content_zstd", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_blobs")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("principal", sa.String(length=200), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("request_sha256", sa.String(length=64), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("principal", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "outbox",
        sa.Column(
            "outbox_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("topic", sa.String(length=48), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("outbox_id", name=op.f("pk_outbox")),
    )
    op.create_index(
        op.f("ix_outbox_published_at_outbox_id"), "outbox", ["published_at", "outbox_id"], unique=False
    )
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=True),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("workload", sa.String(length=64), nullable=False),
        sa.Column("workload_digest", sa.String(length=80), nullable=False),
        sa.Column("model", sa.String(length=64), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("principal", sa.String(length=200), nullable=False),
        sa.Column("gate", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_created_at"), "runs", ["created_at"], unique=False)
    op.create_index(op.f("ix_runs_state"), "runs", ["state"], unique=False)
    op.create_table(
        "devices",
        sa.Column("device_id", sa.String(length=80), nullable=False),
        sa.Column("agent_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("state_since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state_deadline", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("hold_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("drain_to", sa.String(length=32), nullable=True),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("device_model", sa.Text(), nullable=False),
        sa.Column("os_name", sa.Text(), nullable=False),
        sa.Column("os_version", sa.Text(), nullable=False),
        sa.Column("os_build", sa.Text(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("virtual", sa.Boolean(), nullable=False),
        sa.Column("models", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("faults_in_a_row", sa.Integer(), nullable=False),
        sa.Column("rechecks", sa.Integer(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name=op.f("fk_devices_agent_id")),
        sa.PrimaryKeyConstraint("device_id", name=op.f("pk_devices")),
    )
    op.create_index(op.f("ix_devices_agent_id"), "devices", ["agent_id"], unique=False)
    op.create_index(op.f("ix_devices_state"), "devices", ["state"], unique=False)
    op.create_index(op.f("ix_devices_state_deadline"), "devices", ["state_deadline"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("variant", sa.String(length=200), nullable=False),
        sa.Column("selector", sa.JSON(), nullable=False),
        sa.Column("model", sa.String(length=64), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("waiting_reason", sa.Text(), nullable=False),
        sa.Column("excluded_devices", sa.JSON(), nullable=False),
        sa.Column("attempts_used", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("queue_deadline", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_jobs_run_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_run_id_position"), "jobs", ["run_id", "position"], unique=False)
    op.create_index(
        op.f("ix_jobs_state_priority_created_at"), "jobs", ["state", "priority", "created_at"], unique=False
    )
    op.create_table(
        "tokens",
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("scope", sa.String(length=32), nullable=True),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("agent_id", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name=op.f("fk_tokens_agent_id")),
        sa.PrimaryKeyConstraint("token_sha256", name=op.f("pk_tokens")),
    )
    op.create_table(
        "attempts",
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("device_id", sa.String(length=80), nullable=False),
        sa.Column("agent_id", sa.String(length=32), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("device_generation", sa.BigInteger(), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("trials_done", sa.Integer(), nullable=False),
        sa.Column("trials_total", sa.Integer(), nullable=False),
        sa.Column("salvaged", sa.Boolean(), nullable=False),
        sa.Column("last_seq", sa.JSON(), nullable=True),
        sa.Column("phase_deadline", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_event_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("state_since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name=op.f("fk_attempts_agent_id")),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name=op.f("fk_attempts_device_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_attempts_job_id")),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("device_id", "fence", name=op.f("uq_attempts_device_id_fence")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_attempts_job_id_number")),
    )
    op.create_index(
        op.f("ix_attempts_ended_at_phase_deadline"), "attempts", ["ended_at", "phase_deadline"], unique=False
    )
    op.create_index(op.f("ix_attempts_state"), "attempts", ["state"], unique=False)
    op.create_table(
        "device_transitions",
        sa.Column(
            "transition_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("device_id", sa.String(length=80), nullable=False),
        sa.Column("from_state", sa.String(length=32), nullable=False),
        sa.Column("cause", sa.String(length=48), nullable=False),
        sa.Column("to_state", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.device_id"], name=op.f("fk_device_transitions_device_id")
        ),
        sa.PrimaryKeyConstraint("transition_id", name=op.f("pk_device_transitions")),
    )
    op.create_index(
        op.f("ix_device_transitions_device_id_transition_id"),
        "device_transitions",
        ["device_id", "transition_id"],
        unique=False,
    )
    op.create_table(
        "artifacts",
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.attempt_id"], name=op.f("fk_artifacts_attempt_id")
        ),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"], name=op.f("fk_artifacts_sha256")),
        sa.PrimaryKeyConstraint("attempt_id", "name", name=op.f("pk_artifacts")),
    )
    op.create_table(
        "attempt_summaries",
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.attempt_id"], name=op.f("fk_attempt_summaries_attempt_id")
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_attempt_summaries")),
    )
    op.create_table(
        "event_streams",
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("stream", sa.String(length=32), nullable=False),
        sa.Column("next_seq", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.attempt_id"], name=op.f("fk_event_streams_attempt_id")
        ),
        sa.PrimaryKeyConstraint("attempt_id", "stream", name=op.f("pk_event_streams")),
    )
    op.create_table(
        "leases",
        sa.Column("lease_id", sa.String(length=32), nullable=False),
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("device_id", sa.String(length=80), nullable=False),
        sa.Column("agent_id", sa.String(length=32), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("granted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("renewed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name=op.f("fk_leases_agent_id")),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.attempt_id"], name=op.f("fk_leases_attempt_id")),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name=op.f("fk_leases_device_id")),
        sa.PrimaryKeyConstraint("lease_id", name=op.f("pk_leases")),
        sa.UniqueConstraint("attempt_id", name=op.f("uq_leases_attempt_id")),
    )
    op.create_index(op.f("ix_leases_agent_id"), "leases", ["agent_id"], unique=False)
    op.create_index(
        op.f("ix_leases_released_at_expires_at"), "leases", ["released_at", "expires_at"], unique=False
    )
    op.create_index(
        "uq_leases_live_device",
        "leases",
        ["device_id"],
        unique=True,
        sqlite_where=sa.text("released_at IS NULL"),
        postgresql_where=sa.text("released_at IS NULL"),
    )
    op.create_table(
        "samples",
        sa.Column(
            "sample_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("arm", sa.String(length=64), nullable=False),
        sa.Column("pair", sa.Integer(), nullable=True),
        sa.Column("metric", sa.String(length=64), nullable=False),
        sa.Column("agent", sa.String(length=64), nullable=True),
        sa.Column("call", sa.Integer(), nullable=True),
        sa.Column("value", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.attempt_id"], name=op.f("fk_samples_attempt_id")),
        sa.PrimaryKeyConstraint("sample_id", name=op.f("pk_samples")),
    )
    op.create_index(op.f("ix_samples_attempt_id_metric"), "samples", ["attempt_id", "metric"], unique=False)
    op.create_table(
        "claims",
        sa.Column("claim_id", sa.String(length=32), nullable=False),
        sa.Column("agent_id", sa.String(length=32), nullable=False),
        sa.Column("lease_id", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name=op.f("fk_claims_agent_id")),
        sa.ForeignKeyConstraint(["lease_id"], ["leases.lease_id"], name=op.f("fk_claims_lease_id")),
        sa.PrimaryKeyConstraint("claim_id", name=op.f("pk_claims")),
    )
    op.create_index(op.f("ix_claims_created_at"), "claims", ["created_at"], unique=False)
    op.create_table(
        "event_batches",
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("stream", sa.String(length=32), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("lines_zstd", sa.LargeBinary(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("last_seq >= first_seq AND first_seq >= 1", name=op.f("ck_event_batches_range")),
        sa.ForeignKeyConstraint(
            ["attempt_id", "stream"],
            ["event_streams.attempt_id", "event_streams.stream"],
            name="fk_event_batches_stream",
        ),
        sa.PrimaryKeyConstraint("attempt_id", "stream", "first_seq", name=op.f("pk_event_batches")),
    )


def downgrade() -> None:
    raise NotImplementedError("go forward: write a new migration, or restore the backup made before this one")
