"""What may stand after the question mark of a route, as models; the controller refuses anything else."""

from typing import Annotated

from pydantic import Field

from contract.events.envelope import Stream
from contract.ids import Name, RunId
from contract.model import ContractModel

ChoiceText = Annotated[str, Field(max_length=200)]


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
