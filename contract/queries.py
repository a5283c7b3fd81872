"""What may stand after the question mark of a route, as models; the controller refuses anything else."""

from typing import Annotated

from pydantic import AwareDatetime, Field

from contract.administration import TokenId, TokenKind
from contract.events.envelope import Stream
from contract.ids import DeviceAgentId, DeviceId, Name, RunId
from contract.model import ContractModel
from contract.states import DeviceState, TargetKind

ChoiceText = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
NumberToken = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,17}$")]
PageLimit = Annotated[int, Field(ge=1, le=500)]


class RunsQuery(ContractModel):
    """A page of runs, newest first; page_token is the one that the page before gave."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    page_token: RunId | None = None


class EventsQuery(ContractModel):
    """A page of stored events of one stream whose seq is greater than after_seq."""

    stream: Stream = Stream.CONTROL
    after_seq: Annotated[int, Field(ge=0, lt=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000


class ComparisonQuery(ContractModel):
    """With which run, on which arm; device_model and variant choose one result of several."""

    baseline: RunId
    arm: Name = "paged"
    force: bool = False
    device_model: ChoiceText | None = None
    variant: ChoiceText | None = None


class DevicesQuery(ContractModel):
    """A page of devices by id. Every given field must match.

    `text` is a part of id, device model, OS or label, in capitals or not.
    """

    state: DeviceState | None = None
    kind: TargetKind | None = None
    device_model: ChoiceText | None = None
    device_agent_id: DeviceAgentId | None = None
    text: ChoiceText | None = None
    limit: PageLimit = 200
    page_token: DeviceId | None = None


class HistoryQuery(ContractModel):
    """A page of a device's changes of state, newest first."""

    limit: PageLimit = 100
    page_token: NumberToken | None = None


class AuditQuery(ContractModel):
    """A page of the audit, newest first; every given field must match, `until` is the first moment after."""

    subject: ChoiceText | None = None
    actor: ChoiceText | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    limit: PageLimit = 100
    page_token: NumberToken | None = None


class TokensQuery(ContractModel):
    """A page of tokens, newest first. `ended`: also those that were revoked, have expired or were used up."""

    kind: TokenKind | None = None
    ended: bool = False
    limit: PageLimit = 100
    page_token: TokenId | None = None
