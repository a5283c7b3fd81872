"""Options that a person typed to a body or query, or to the error that names the wrong one."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from client.errors import UsageError

Model = TypeVar("Model", bound=BaseModel)


def built(model: type[Model], **options: object) -> Model:
    """The body or query that options make; UsageError that names the first one that cannot be."""
    try:
        return model.model_validate(options)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "-".join(str(part) for part in first["loc"]).replace("_", "-")
        raise UsageError("bad-option", f"{name}: {first['msg']}") from error
