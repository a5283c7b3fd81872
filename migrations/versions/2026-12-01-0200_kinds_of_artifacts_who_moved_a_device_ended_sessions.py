"""What an artifact is, who moved a device, when a token was last used, and sessions that were ended."""

import sqlalchemy as sa
from alembic import op

revision: str = "3fa6d28c9b04"
down_revision: str | None = "8d40c9b7e1a5"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    # Rather fail than stand in front of everybody else's transactions (docs/adr/0007).
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")
    # Nullable, or with a default of the database: the released code inserts rows without these columns.
    with op.batch_alter_table("artifacts") as artifacts:
        artifacts.add_column(sa.Column("kind", sa.String(32), nullable=False, server_default="other"))
    with op.batch_alter_table("device_transitions") as transitions:
        transitions.add_column(sa.Column("principal", sa.String(200), nullable=False, server_default=""))
    with op.batch_alter_table("tokens") as tokens:
        tokens.add_column(sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "ended_sessions",
        sa.Column("cookie_sha256", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("cookie_sha256", name="pk_ended_sessions"),
    )
    op.create_index("ix_ended_sessions_expires_at", "ended_sessions", ["expires_at"])


def downgrade() -> None:
    raise NotImplementedError("go forward: write a new migration, or restore the backup made before this one")
