"""What people with the scope `admin` do and read over REST: tokens, the audit, device agents, histories."""

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field, PositiveInt

from contract.ids import DeviceAgentId, DeviceId
from contract.model import ContractModel, SentModel
from contract.states import DeviceState

# --- tokens


class TokenKind(StrEnum):
    """What a token lets its holder be."""

    USER = "user"
    AGENT = "agent"
    ENROLMENT = "enrolment"


class TokenScope(StrEnum):
    """What a user's token allows, each including the one before; agents and enrolments have none."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"


TokenName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
TokenId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
"""The beginning of the digest of a token's text: it names the token and lets nobody in."""

LONGEST_TOKEN_S = 10 * 366 * 86_400


class UserTokenRequest(SentModel):
    """Ask for a token of a person or of a program that submits."""

    name: TokenName
    scope: TokenScope
    valid_s: Annotated[float, Field(gt=0, le=LONGEST_TOKEN_S)] | None = 90 * 86_400.0
    """None: it never expires, only by being revoked."""


class EnrollmentTokenRequest(SentModel):
    """Ask for a token with which one device agent may enrol once."""

    name: TokenName = "enrolment"
    valid_s: Annotated[float, Field(gt=0, le=3600)] = 3600.0


class NewToken(ContractModel):
    """A new token, shown here only: the controller keeps its digest."""

    token_id: TokenId
    token: str
    expires_at: AwareDatetime | None


class TokenView(ContractModel):
    """What is known of a token, which is not its text."""

    token_id: TokenId
    kind: TokenKind
    name: str
    scope: TokenScope | None
    device_agent_id: DeviceAgentId | None
    created_at: AwareDatetime
    expires_at: AwareDatetime | None
    last_used_at: AwareDatetime | None
    """To the minute, more or less; of an enrolment token, when it was exchanged."""
    revoked_at: AwareDatetime | None


class TokenPage(ContractModel):
    """Newest first. next_page_token None at the end."""

    tokens: list[TokenView]
    next_page_token: str | None


# --- what happened


class AuditAction(StrEnum):
    """What a person, or a device agent that enrolled, did."""

    SUBMIT = "submit"
    CANCEL = "cancel"
    LOG_IN = "log_in"
    LOG_OUT = "log_out"
    ENROL = "enrol"
    TOKEN_CREATED = "token_created"
    TOKEN_REVOKED = "token_revoked"
    ENROLMENT_TOKEN_CREATED = "enrollment_token"
    QUARANTINE = "quarantine"
    RELEASE = "release"
    MAINTAIN = "maintain"
    RESERVE = "reserve"
    RETIRE = "retire"
    DRAIN = "drain"
    RESUME = "resume"


class AuditEntry(ContractModel):
    """One act: who did what to what. `actor` is the name of the token that was shown."""

    audit_id: PositiveInt
    at: AwareDatetime
    actor: str
    action: str
    """An AuditAction, or a word of an older version."""
    subject: str
    """A run, a device, a device agent, or the name of a token."""
    detail: str


class AuditPage(ContractModel):
    """Newest first. next_page_token None at the end."""

    entries: list[AuditEntry]
    next_page_token: str | None


class DeviceTransition(ContractModel):
    """One change of a device's state. `cause` is a word of the table in docs/devices.md."""

    transition_id: PositiveInt
    at: AwareDatetime
    from_state: DeviceState
    to_state: DeviceState
    cause: str
    detail: str
    actor: str
    """The person who decided it; empty where the farm did."""


class DeviceHistory(ContractModel):
    """Newest first. next_page_token None at the end."""

    device_id: DeviceId
    transitions: list[DeviceTransition]
    next_page_token: str | None


# --- device agents


class DeviceAgentView(ContractModel):
    """A device agent: the process beside devices."""

    device_agent_id: DeviceAgentId
    name: str
    version: str
    contract_version: str
    draining: bool
    """It gets no new work; what runs goes on."""
    devices: int
    disk_free_bytes: int | None
    spool_backlog_events: int | None
    """Events that it has not sent yet. Both None before its first hello."""
    enrolled_at: AwareDatetime
    last_seen_at: AwareDatetime


class DeviceAgentList(ContractModel):
    """Every device agent that ever enrolled, by id."""

    device_agents: list[DeviceAgentView]


# --- a person's decisions


class DeviceAction(SentModel):
    """A person's decision about a device or a device agent; the reason is kept in its history."""

    reason: Annotated[str, Field(min_length=1, max_length=500)]


class DeviceReservation(DeviceAction):
    """Take a device out of the farm for a while; it comes back by itself."""

    period_s: Annotated[float, Field(gt=0, le=30 * 86_400)]
