"""The base of every contract model: frozen, no unknown field; and of those that people and agents send."""

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

_NO_TEXT = PydanticCustomError(
    "not_storable", "this text has a NUL character or half of a surrogate pair; remove it"
)
_NO_NUMBER = PydanticCustomError("not_finite", "NaN and infinity are not JSON numbers; send a finite one")
_NOT_STORABLE = re.compile("[\\x00\\ud800-\\udfff]")
_Place = tuple[int | str, ...]


class ContractModel(BaseModel):
    """Immutable; an unknown field is an error, so that a typing mistake never travels."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class SentModel(ContractModel):
    """A body that is kept: a text or number that no database or answer can hold is refused by its field.

    A JSON string may be "\\u0000" or half of a surrogate pair. PostgreSQL stores neither, and no answer that
    quotes the latter can be written as UTF-8: once stored, it would break every page that shows it. NaN,
    which Python reads and writes, is no JSON at all.
    """

    @model_validator(mode="before")
    @classmethod
    def _can_be_kept(cls, value: Any) -> Any:
        wrong = next(_unstorable(value), None)
        if wrong is not None:
            # The text itself stays out of the error, which is written as UTF-8 too.
            line = InitErrorDetails(type=wrong[1], loc=wrong[0], input=None)
            raise ValidationError.from_exception_data(cls.__name__, [line])
        return value


def _unstorable(value: Any) -> Iterator[tuple[_Place, PydanticCustomError]]:
    """What cannot be kept, and where; walks without recursion, since a body may be nested deeply."""
    open_values: list[tuple[_Place, Any]] = [((), value)]
    while open_values:
        place, found = open_values.pop()
        if isinstance(found, str) and not is_storable(found):
            yield place, _NO_TEXT
        elif isinstance(found, float) and not isfinite(found):
            yield place, _NO_NUMBER
        elif isinstance(found, dict):
            if not all(is_storable(key) for key in found if isinstance(key, str)):
                yield place, _NO_TEXT
                continue
            open_values.extend(((*place, key), each) for key, each in found.items())
        elif isinstance(found, list | tuple):
            open_values.extend(((*place, index), each) for index, each in enumerate(found))


def is_storable(text: str) -> bool:
    """Whether every database and every answer in UTF-8 can hold the text."""
    return _NOT_STORABLE.search(text) is None


def storable_text(text: str) -> str:
    """The text with U+FFFD for each character that `SentModel` refuses: for what a program said."""
    return _NOT_STORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def printable_text(text: str) -> str:
    """The text with U+FFFD for each character that acts on a terminal instead of being shown."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text
    )
