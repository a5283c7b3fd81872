"""Bodies of device agents: the version is looked at before the rest, which it may have changed."""

import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from controller.errors import BadRequestError
from controller.protocol.enrolment import require_contract

Body = TypeVar("Body", bound=BaseModel)


def versioned(model: type[Body]) -> Callable[[Request], Awaitable[Body]]:
    """A dependency that reads a body with `contract_version`.

    AgentOutdatedError for a version that is not spoken here, whatever else is in the body; then
    BadRequestError for the first wrong field.
    """

    async def read(request: Request) -> Body:
        raw = await request.body()
        try:
            said = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise BadRequestError("", f"the body is not JSON, or nested too deeply: {error}") from error
        if isinstance(said, dict) and isinstance(said.get("contract_version"), str):
            require_contract(said["contract_version"])
        try:
            return model.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            pointer = "".join(f"/{part}" for part in first["loc"])
            raise BadRequestError(pointer, first["msg"]) from error

    return read
