"""Files, histories, the audit, tokens and device agents as rich renderables, pure."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from client.render_lists import moment, rows_table
from contract.administration import (
    AuditEntry,
    DeviceAgentView,
    DeviceTransition,
    NewToken,
    TokenView,
)
from contract.artifacts import ArtifactView
from measures.wording import megabytes


def artifacts_table(artifacts: Sequence[ArtifactView]) -> RenderableType:
    table = rows_table("attempt", "file", "kind", "size", "stored")
    for each in artifacts:
        size = f"{each.size_bytes} bytes" if each.size_bytes < 1_000_000 else megabytes(each.size_bytes)
        table.add_row(each.attempt_id, each.name, each.kind.replace("_", " "), size, moment(each.created_at))
    return table if artifacts else Text("no files: no attempt of this run left any")


def history_table(transitions: Sequence[DeviceTransition]) -> RenderableType:
    table = rows_table("when", "from", "to", "cause", "reason", "by")
    for each in transitions:
        detail = each.detail or "–"
        by = each.actor or "the farm"
        table.add_row(moment(each.at), each.from_state, each.to_state, each.cause, detail, by)
    return table


def audit_table(entries: Sequence[AuditEntry]) -> RenderableType:
    table = rows_table("when", "who", "did", "to", "detail")
    for each in entries:
        cells = (each.actor, each.action, each.subject, each.detail)
        table.add_row(moment(each.at), *cells)
    return table if entries else Text("nobody did anything that matches")


def tokens_table(tokens: Sequence[TokenView]) -> RenderableType:
    table = rows_table("id", "name", "may", "made", "ends", "last used")
    for each in tokens:
        ends = (
            f"revoked {moment(each.revoked_at)}" if each.revoked_at else _moment_or(each.expires_at, "never")
        )
        may = each.scope or each.kind
        used = _moment_or(each.last_used_at, "–")
        table.add_row(each.token_id, each.name, may, moment(each.created_at), ends, used)
    return table if tokens else Text("no tokens")


def new_token_view(made: NewToken) -> RenderableType:
    """The text on a line of its own, so that it can be copied."""
    ends = _moment_or(made.expires_at, "never")
    return Group(
        Text(made.token, overflow="fold"),
        Text(f"shown this once; id {made.token_id}, ends {ends}", overflow="fold"),
    )


def device_agents_table(agents: Sequence[DeviceAgentView]) -> RenderableType:
    table = rows_table(
        "device agent", "name", "version", "devices", "gets work", "disk free", "last heard of"
    )
    for each in agents:
        free = "unknown" if each.disk_free_bytes is None else f"{each.disk_free_bytes / 1e9:.1f} GB"
        work = "no, drained" if each.draining else "yes"
        cells = (each.name, each.version, str(each.devices), work, free)
        table.add_row(each.device_agent_id, *cells, moment(each.last_seen_at))
    return table if agents else Text("no device agents yet; `dynofarm agent` on a machine makes it one")


def _moment_or(time: datetime | None, otherwise: str) -> str:
    return otherwise if time is None else moment(time)
