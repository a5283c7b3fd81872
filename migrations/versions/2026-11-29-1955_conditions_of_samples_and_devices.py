"""Conditions of samples, and until when a device waits for one."""

import sqlalchemy as sa
from alembic import op

revision: str = "8d40c9b7e1a5"
down_revision: str | None = "5c1e7ab0d3f2"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    # Rather fail than stand in front of everybody else's transactions (docs/adr/0007).
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")
    # Nullable, or with a default of the database: the released code inserts rows without these columns.
    with op.batch_alter_table("samples") as samples:
        samples.add_column(
            sa.Column("thermal_state", sa.String(16), nullable=False, server_default="unknown")
        )
        samples.add_column(sa.Column("battery_percent", sa.Float(), nullable=True))
        samples.add_column(sa.Column("charging", sa.Boolean(), nullable=True))
        samples.add_column(sa.Column("low_power_mode", sa.Boolean(), nullable=True))
    with op.batch_alter_table("devices") as devices:
        devices.add_column(sa.Column("ready_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("go forward: write a new migration, or restore the backup made before this one")
