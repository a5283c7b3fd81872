"""`dynofarm audit`: who did what."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from client.durations import duration_s
from client.options import ControllerOptions
from client.output import Output
from client.refusals import built
from client.render_administration import audit_table
from contract import routes
from contract.administration import AuditEntry
from contract.queries import AuditQuery
from contract.states import GateExit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions(ControllerOptions):
    """Which acts."""

    subject: Annotated[
        str, typer.Option("--subject", help="Only what concerns this run, device or token name.")
    ] = ""
    actor: Annotated[str, typer.Option("--actor", help="Only what the token of this name did.")] = ""
    since: Annotated[str, typer.Option("--since", help="Only the last 90s, 30m, 2h or 7d.")] = ""
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many, newest first.")] = 50


def audit(options: AuditOptions, output: Output) -> int:
    """Show who submitted, cancelled, logged in, enrolled, changed a device, made or revoked a token."""
    since = None
    if options.since:
        since = datetime.now(UTC) - timedelta(seconds=duration_s(options.since, "--since"))
    found: list[AuditEntry] = []
    page_token: str | None = None
    with options.client() as client:
        while len(found) < options.limit:
            query = built(
                AuditQuery,
                subject=options.subject or None,
                actor=options.actor or None,
                since=since,
                limit=min(500, options.limit - len(found)),
                page_token=page_token,
            )
            page = client.call(routes.LIST_AUDIT, query=query)
            found += page.entries
            page_token = page.next_page_token
            if page_token is None:
                break
    output.result(found, audit_table(found))
    return GateExit.PASS
