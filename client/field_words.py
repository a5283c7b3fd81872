"""A field of a run request as a person said it: the option of `dynofarm submit` that sets it."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "model": "--model",
        "workload/name": "WORKLOAD",
        "workload/source": "--workload-file",
        r"workload/params/(.+)": r"--param \1",
        "arms": "--arm",
        r"arms/\d+/(?:arm|mode)": "--arm",
        r"arms/\d+/engine/(.+)": r"--arm, engine option \1",
        r"engine/(.+)": r"--engine \1",
        "repetitions": "--pairs",
        r"selectors/\d+/device_id": "--device",
        r"selectors/\d+/labels/(.+)": r"--device-label \1",
        r"selectors/\d+/(kind|device_model|os_version)": r"--\1",
        r"gate/metrics(?:/\d+)?": "--metric",
        r"gate/floor_percent/(.+)": r"--floor \1",
        r"gate/(alpha|inconclusive)": r"--\1",
        "build/commit": "--commit",
        r"labels/(.+)": r"--label \1",
        "(baseline|candidate|warmups|design|seed|priority|queue_deadline_s|max_attempts)": r"--\1",
    }
)
"""Pointer without its first slash, as a pattern, to what is typed."""


def field_in_words(pointer: str) -> str:
    """The option, where there is one; else the field as its file has it, and for none the request."""
    for pattern, option in _OPTIONS.items():
        found = re.fullmatch(pattern, pointer.removeprefix("/"))
        if found is not None:
            said = found.expand(option)
            # The names of options have no underscore, the names in their values have.
            name, blank, value = said.partition(" ")
            return name.replace("_", "-") + blank + value
    return pointer or "the request"
