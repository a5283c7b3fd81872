"""${message}."""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}

revision: str = ${repr(up_revision)}
down_revision: str | None = ${repr(down_revision)}
branch_labels: str | None = ${repr(branch_labels)}
depends_on: str | None = ${repr(depends_on)}


def upgrade() -> None:
    # Rather fail than stand in front of everybody else's transactions (docs/adr/0007).
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    raise NotImplementedError("go forward: write a new migration, or restore the backup made before this one")
