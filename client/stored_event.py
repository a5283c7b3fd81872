"""A stored event as the contract's type."""

from typing import Any

from pydantic import ValidationError

from client.errors import InfrastructureError
from contract.events import EVENT_ADAPTER, Event


def parsed_event(stored: dict[str, Any]) -> Event:
    """The event; InfrastructureError for one that this version does not know."""
    try:
        return EVENT_ADAPTER.validate_python(stored)
    except ValidationError as error:
        raise InfrastructureError(
            "unexpected-answer",
            f"the controller stored an event that this version does not know: {stored.get('type')}",
            "install the same dynofarm version here and on the controller",
        ) from error
