"""The device agent's own stream and events have its name, in what 0.1 stored too.

Only values change, no table. Code of 0.1 cannot read the new words of attempts that it recorded itself, so it
is stopped first; what it stored is whole again after this.
"""

import sqlalchemy as sa
import zstandard
from alembic import op

revision: str = "c2f6a1d90b47"
down_revision: str | None = "3fa6d28c9b04"
branch_labels: str | None = None
depends_on: str | None = None

_OLD, _NEW = "agent", "device_agent"
# As pydantic wrote them, without blanks. Inside a text every quotation mark has a backslash before it, so
# that none of these can be part of one.
_IN_LINES = (
    (b'"type":"agent_restarted"', b'"type":"device_agent_restarted"'),
    (b'"stream":"agent"', b'"stream":"device_agent"'),
    (b'"reason":"agent_restarted"', b'"reason":"device_agent_restarted"'),
)
_MAX_LINES_BYTES = 256 << 20

_streams = sa.table("event_streams", sa.column("attempt_id"), sa.column("stream"), sa.column("next_seq"))
_batches = sa.table(
    "event_batches",
    *(sa.column(name) for name in ("attempt_id", "stream", "first_seq")),
    sa.column("lines_zstd", sa.LargeBinary),
)
_attempts = sa.table(
    "attempts",
    *(sa.column(name) for name in ("attempt_id", "reason")),
    sa.column("last_seq", sa.JSON(none_as_null=True)),
)


def upgrade() -> None:
    # Rather fail than stand in front of everybody else's transactions (docs/adr/0007).
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(
        _attempts.update()
        .where(_attempts.c.reason == "agent_restarted")
        .values(reason="device_agent_restarted")
    )
    _rename_keys_of_last_seq()
    # A batch refers to its stream: the new one is there before, the old one goes after.
    op.execute(
        _streams.insert().from_select(
            ["attempt_id", "stream", "next_seq"],
            sa.select(_streams.c.attempt_id, sa.literal(_NEW), _streams.c.next_seq).where(
                _streams.c.stream == _OLD
            ),
        )
    )
    _rewrite_batches()
    op.execute(_streams.delete().where(_streams.c.stream == _OLD))


def _rename_keys_of_last_seq() -> None:
    database = op.get_bind()
    counted = sa.select(_attempts.c.attempt_id, _attempts.c.last_seq).where(_attempts.c.last_seq.is_not(None))
    for attempt_id, last_seq in database.execute(counted).all():
        if last_seq is not None and _OLD in last_seq:
            renamed = {_NEW if name == _OLD else name: seq for name, seq in last_seq.items()}
            database.execute(
                _attempts.update().where(_attempts.c.attempt_id == attempt_id).values(last_seq=renamed)
            )


def _rewrite_batches() -> None:
    """One batch at a time: all of them together may be larger than memory."""
    database = op.get_bind()
    keys = database.execute(
        sa.select(_batches.c.attempt_id, _batches.c.first_seq).where(_batches.c.stream == _OLD)
    ).all()
    for attempt_id, first_seq in keys:
        this = sa.and_(
            _batches.c.attempt_id == attempt_id,
            _batches.c.stream == _OLD,
            _batches.c.first_seq == first_seq,
        )
        packed = database.execute(sa.select(_batches.c.lines_zstd).where(this)).scalar_one()
        lines = zstandard.decompress(packed, max_output_size=_MAX_LINES_BYTES)
        for old, new in _IN_LINES:
            lines = lines.replace(old, new)
        database.execute(
            _batches.update().where(this).values(stream=_NEW, lines_zstd=zstandard.compress(lines))
        )


def downgrade() -> None:
    raise NotImplementedError("go forward: write a new migration, or restore the backup made before this one")
