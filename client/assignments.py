"""`NAME=VALUE` and `ARM=MODE,NAME=VALUE` as they are typed on a command line."""

import json
from collections.abc import Iterable
from typing import Any, get_args

from client.errors import UsageError
from contract.jobs import ArmMode, EngineOptions
from contract.rest import ArmRequest


def assignments(given: Iterable[str], option: str) -> dict[str, Any]:
    """Names to values; a value that reads as JSON (a number, true, "text") is that, else it is text."""
    values: dict[str, Any] = {}
    for each in given:
        name, value = _split(each, option)
        if name in values:
            raise UsageError("bad-option", f"{option} {each}: {name} is given twice", "give it once")
        values[name] = _value(value)
    return values


def engine_options(given: Iterable[str], option: str) -> dict[str, Any]:
    """As `assignments`, for options of the engine; UsageError that lists them for one that does not exist."""
    options = assignments(given, option)
    for name in options:
        if name not in EngineOptions.model_fields:
            raise UsageError(
                "bad-option",
                f"{option} {name}: the engine has no such option",
                f"the options are {', '.join(EngineOptions.model_fields)}",
            )
    return options


def text_assignments(given: Iterable[str], option: str) -> dict[str, str]:
    """Names to text, whatever the text looks like."""
    return dict(_split(each, option) for each in given)


def arm_requests(given: Iterable[str], option: str) -> list[ArmRequest]:
    """`paged`, `small=paged,block_tokens=16`: name, mode (the name when left out), engine options."""
    return [_arm(each, option) for each in given]


def _arm(text: str, option: str) -> ArmRequest:
    head, *engine = text.split(",")
    name, _, mode = head.partition("=")
    mode = mode or name
    modes = get_args(ArmMode)
    if mode not in modes:
        raise UsageError(
            "bad-option",
            f"{option} {text}: {mode!r} is not a mode of an arm",
            f"the modes are {', '.join(modes)}",
        )
    return ArmRequest.model_validate({"arm": name, "mode": mode, "engine": engine_options(engine, option)})


def _split(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(
            "bad-option", f"{option} {text!r} is not an assignment", f"write {option} NAME=VALUE"
        )
    return name, value


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | str) else text
