"""Every table. `Row.metadata` is the schema that the migrations must make."""

from contract.administration import TokenKind, TokenScope
from controller.db.models.columns import (
    CompressedJson,
    NaiveDatetimeError,
    Row,
    UtcDateTime,
    WordText,
)
from controller.db.models.facts import (
    ArtifactRow,
    AttemptSummaryRow,
    EventBatchRow,
    EventStreamRow,
    OutboxRow,
    SampleRow,
)
from controller.db.models.fleet import AgentRow, DeviceRow, DeviceTransitionRow
from controller.db.models.people import AuditRow, BlobRow, EndedSessionRow, IdempotencyKeyRow, TokenRow
from controller.db.models.upkeep import PeriodicMarkRow
from controller.db.models.work import AttemptRow, ClaimRow, JobRow, LeaseRow, RunRow

__all__ = [
    "AgentRow",
    "ArtifactRow",
    "AttemptRow",
    "AttemptSummaryRow",
    "AuditRow",
    "BlobRow",
    "ClaimRow",
    "CompressedJson",
    "DeviceRow",
    "DeviceTransitionRow",
    "EndedSessionRow",
    "EventBatchRow",
    "EventStreamRow",
    "IdempotencyKeyRow",
    "JobRow",
    "LeaseRow",
    "NaiveDatetimeError",
    "OutboxRow",
    "PeriodicMarkRow",
    "Row",
    "RunRow",
    "SampleRow",
    "TokenKind",
    "TokenRow",
    "TokenScope",
    "UtcDateTime",
    "WordText",
]
