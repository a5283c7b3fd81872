"""Calibrations of devices and attempts."""

import sqlalchemy as sa
from alembic import op

revision: str = "5c1e7ab0d3f2"
down_revision: str | None = "fb78a94034f6"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    # Rather fail than stand in front of everybody else's transactions (docs/adr/0007).
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")
    # With defaults of the database: the released code inserts rows without these columns.
    with op.batch_alter_table("devices") as devices:
        devices.add_column(sa.Column("calibrations", sa.JSON(), nullable=False, server_default="[]"))
    with op.batch_alter_table("attempts") as attempts:
        attempts.add_column(sa.Column("calibrations", sa.JSON(), nullable=False, server_default="{}"))


def downgrade() -> None:
    raise NotImplementedError("go forward: write a new migration, or restore the backup made before this one")
