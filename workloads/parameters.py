"""Parameters: defaults, limits, sweeps, and putting values in the place of `$name`."""

import re
from itertools import product
from math import prod
from typing import Any, Final

from contract.workload import MAX_VARIANT_CHARACTERS
from workloads.errors import WorkloadError
from workloads.located import LocatedData, Path, check_integer
from workloads.template import Header, Parameter

MAX_CELLS: Final = 128

# `$name`, and `$name-1` for what is left after the first: enough for rounds, and no language.
_REFERENCE: Final = re.compile(r"\$([a-z][a-z0-9_]*)([+-][0-9]{1,6})?")

_KINDS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
}


def resolve(header: Header, given: dict[str, Any], data: LocatedData) -> list[dict[str, Any]]:
    """One set of values for each cell of the sweep (a single one without a sweep).

    A parameter given by the caller is not swept. Raises WorkloadError for an unknown name, a wrong
    kind, a value outside of its limits, or more than MAX_CELLS cells; all before any cell is made.
    """
    unknown = sorted(set(given) - set(header.parameters))
    if unknown:
        known = ", ".join(sorted(header.parameters)) or "none"
        raise WorkloadError(data.source_name, f"params.{unknown[0]}", f"no such parameter; known: {known}")
    for name, value in given.items():
        problem = _problem(header.parameters[name], value)
        if problem:
            raise WorkloadError(data.source_name, f"params.{name}", problem)
    _check_file(header, data)
    swept = {name: values for name, values in header.sweep.items() if name not in given}
    cells = prod(len(values) for values in swept.values())
    if cells > MAX_CELLS:
        raise data.error(("sweep",), f"the sweep has {cells} cells, at most {MAX_CELLS} are allowed")
    defaults = {name: parameter.default for name, parameter in header.parameters.items()}
    return [
        {**defaults, **given, **dict(zip(swept, values, strict=True))} for values in product(*swept.values())
    ]


def _check_file(header: Header, data: LocatedData) -> None:
    """The values that the file itself gives."""
    for name, parameter in header.parameters.items():
        problem = _problem(parameter, parameter.default)
        if problem:
            raise data.error(("parameters", name, "default"), problem)
    for name, values in header.sweep.items():
        if name not in header.parameters:
            raise data.error(("sweep", name), "no such parameter")
        for index, value in enumerate(values):
            problem = _problem(header.parameters[name], value)
            if problem:
                raise data.error(("sweep", name, index), problem)


def variant_name(header: Header, given: dict[str, Any], values: dict[str, Any], data: LocatedData) -> str:
    """Names one cell of the sweep, e.g. `agents=4`."""
    name = ",".join(f"{name}={values[name]}" for name in header.sweep if name not in given)
    if len(name) > MAX_VARIANT_CHARACTERS:
        problem = f"a cell's name has over {MAX_VARIANT_CHARACTERS} characters; sweep shorter values"
        raise data.error(("sweep",), f"{problem} than {name[:40]}…")
    return name


def _problem(parameter: Parameter, value: Any) -> str:
    """Why the parameter cannot have the value; empty where it can."""
    is_flag = isinstance(value, bool)
    if not isinstance(value, _KINDS[parameter.kind]) or (is_flag and parameter.kind != "boolean"):
        return f"{_shown(value)} is not of the kind {parameter.kind}"
    return "" if is_flag or isinstance(value, str) else _out_of_range(parameter, value)


def _out_of_range(parameter: Parameter, value: Any) -> str:
    try:
        check_integer(int(value))
    except (ValueError, OverflowError) as error:
        return f"{_shown(value)}: {error}"
    if parameter.minimum is not None and value < parameter.minimum:
        return f"{value} is below the minimum of {parameter.minimum:g}"
    if parameter.maximum is not None and value > parameter.maximum:
        return f"{value} is above the maximum of {parameter.maximum:g}"
    return ""


def _shown(value: Any) -> str:
    """The value as a message can hold it: a JSON integer may have thousands of digits."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return "this number"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def substitute(data: LocatedData, values: dict[str, Any]) -> LocatedData:
    """The same data with each `$name` (or `$name-1`) replaced; an unknown name is an error with its line."""
    return LocatedData(data.source_name, _replaced(data, data.value, (), values), data.lines)


def _replaced(data: LocatedData, value: Any, path: Path, values: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(data, child, (*path, key), values) for key, child in value.items()}
    if isinstance(value, list):
        return [_replaced(data, child, (*path, index), values) for index, child in enumerate(value)]
    reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if reference is None:
        return value
    name, offset = reference.groups()
    if name not in values:
        raise data.error(path, f"{value}: no such parameter")
    if offset is None:
        return values[name]
    if isinstance(values[name], bool) or not isinstance(values[name], int):
        raise data.error(path, f"{value}: {name} is not an integer")
    return values[name] + int(offset)
