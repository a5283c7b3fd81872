"""The base of every contract model: frozen, no unknown field; and of those that people and agents send."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

_NO_TEXT = PydanticCustomError(
    "not_storable", "this text has a NUL character or half of a surrogate pair; remove it"
)


class ContractModel(BaseModel):
    """Immutable; an unknown field is an error, so that a typing mistake never travels."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="null", use_attribute_docstrings=True
    )


class SentModel(ContractModel):
    """A body whose texts are kept: one that a database or an answer cannot hold is refused by its field.

    A JSON string may be "\\u0000" or half of a surrogate pair. PostgreSQL stores neither, and no answer that
    quotes the latter can be written as UTF-8: once stored, it would break every page that shows it.
    """

    @model_validator(mode="before")
    @classmethod
    def _can_be_kept(cls, value: Any) -> Any:
        wrong = next(_unstorable(value), None)
        if wrong is not None:
            # The text itself stays out of the error, which is written as UTF-8 too.
            line = InitErrorDetails(type=_NO_TEXT, loc=wrong, input=None)
            raise ValidationError.from_exception_data(cls.__name__, [line])
        return value


def _unstorable(value: Any) -> Iterator[tuple[int | str, ...]]:
    """Places of texts that cannot be kept; walks without recursion, since a body may be nested deeply."""
    open_values: list[tuple[tuple[int | str, ...], Any]] = [((), value)]
    while open_values:
        place, found = open_values.pop()
        if isinstance(found, str):
            if not _is_storable(found):
                yield place
        elif isinstance(found, dict):
            if not all(_is_storable(key) for key in found if isinstance(key, str)):
                yield place
            open_values.extend(((*place, key), each) for key, each in found.items())
        elif isinstance(found, list | tuple):
            open_values.extend(((*place, index), each) for index, each in enumerate(found))


def _is_storable(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
