"""`dynofarm tokens`: who may talk to the controller."""

import dataclasses
from typing import Annotated

import typer

from client.durations import duration_s
from client.errors import UsageError
from client.options import ControllerOptions
from client.output import Output
from client.refusals import built
from client.render_administration import new_token_view, tokens_table
from contract import routes
from contract.administration import (
    EnrollmentTokenRequest,
    NewToken,
    TokenScope,
    TokenView,
    UserTokenRequest,
)
from contract.queries import TokensQuery
from contract.states import GateExit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokensOptions(ControllerOptions):
    """Which tokens."""

    ended: Annotated[
        bool, typer.Option("--all", help="Also those that were revoked, have expired or were used up.")
    ] = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenCreateOptions(ControllerOptions):
    """What the token is for."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what will use it; shown in the audit.")]
    scope: Annotated[
        TokenScope | None,
        typer.Option("--scope", help="viewer reads, submitter also submits, admin also runs the lab."),
    ] = None
    enrolment: Annotated[
        bool, typer.Option("--enrolment", help="For a device agent: works once, within the hour.")
    ] = False
    valid_for: Annotated[
        str, typer.Option("--valid-for", help="90s, 30m, 2h, 7d or `forever` [90d; 1h with --enrolment].")
    ] = ""

    def __post_init__(self) -> None:
        """UsageError unless it is said what the token may do."""
        if self.enrolment == (self.scope is not None):
            raise UsageError("bad-option", "give either --scope or --enrolment")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions(ControllerOptions):
    """Which one."""

    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="As `dynofarm tokens list` shows it.")]


def list_tokens(options: TokensOptions, output: Output) -> int:
    """List tokens with scope, end and last use. Their texts are shown nowhere."""
    found: list[TokenView] = []
    page_token: str | None = None
    with options.client() as client:
        while True:
            query = TokensQuery(ended=options.ended, page_token=page_token)
            page = client.call(routes.LIST_TOKENS, query=query)
            found += page.tokens
            page_token = page.next_page_token
            if page_token is None:
                break
    output.result(found, tokens_table(found))
    return GateExit.PASS


def create(options: TokenCreateOptions, output: Output) -> int:
    """Make a token for a person, a program or, with --enrolment, a device agent. It is shown this once."""
    made = _made(options)
    output.result(made, new_token_view(made))
    return GateExit.PASS


def revoke(options: TokenOptions, output: Output) -> int:
    """End a token at once, and every session that began with it."""
    with options.client() as client:
        token = client.call(routes.REVOKE_TOKEN, token_id=options.token_id)
    output.result(token, tokens_table([token]))
    return GateExit.PASS


def _made(options: TokenCreateOptions) -> NewToken:
    forever = options.valid_for == "forever"
    valid_s = duration_s(options.valid_for, "--valid-for") if options.valid_for and not forever else None
    asked: dict[str, object] = {"name": options.name}
    if options.valid_for:
        asked["valid_s"] = valid_s
    if options.enrolment and forever:
        raise UsageError("bad-option", "an enrolment token is valid for an hour at most")
    with options.client() as client:
        if options.scope is None:
            request = built(EnrollmentTokenRequest, **asked)
            return client.call(routes.CREATE_ENROLLMENT_TOKEN, request)
        return client.call(routes.CREATE_TOKEN, built(UserTokenRequest, **asked, scope=options.scope))
