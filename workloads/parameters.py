"""Parameters: defaults, limits, sweeps, and putting values in the place of `$name`."""

import re
from itertools import product
from typing import Any, Final

from workloads.errors import WorkloadError
from workloads.located import LocatedData, Path
from workloads.template import Header, Parameter

# `$name`, and `$name-1` for what is left after the first: enough for rounds, and no language.
_REFERENCE: Final = re.compile(r"\$([a-z][a-z0-9_]*)([+-][0-9]{1,6})?")

_KINDS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
}


def resolve(header: Header, given: dict[str, Any], source_name: str) -> list[dict[str, Any]]:
    """One set of values for each cell of the sweep (a single one without a sweep).

    A parameter given by the caller is not swept. Raises WorkloadError for an unknown name, a wrong
    kind, or a value outside of its limits.
    """
    unknown = sorted(set(given) - set(header.parameters))
    if unknown:
        known = ", ".join(sorted(header.parameters)) or "none"
        raise WorkloadError(source_name, f"params.{unknown[0]}", f"no such parameter; known: {known}")
    for name in header.sweep:
        if name not in header.parameters:
            raise WorkloadError(source_name, f"sweep.{name}", "no such parameter")
    defaults = {name: parameter.default for name, parameter in header.parameters.items()}
    swept = {name: values for name, values in header.sweep.items() if name not in given}
    cells = [dict(zip(swept, values, strict=True)) for values in product(*swept.values())]
    resolved = [{**defaults, **given, **cell} for cell in cells]
    for values in resolved:
        for name, value in values.items():
            _check(header.parameters[name], value, f"params.{name}", source_name)
    return resolved


def variant_name(header: Header, given: dict[str, Any], values: dict[str, Any]) -> str:
    """Names one cell of the sweep, e.g. `agents=4`."""
    return ",".join(f"{name}={values[name]}" for name in header.sweep if name not in given)


def _check(parameter: Parameter, value: Any, field: str, source_name: str) -> None:
    allowed = _KINDS[parameter.kind]
    is_flag = isinstance(value, bool)
    if not isinstance(value, allowed) or (is_flag and parameter.kind != "boolean"):
        raise WorkloadError(source_name, field, f"{value!r} is not of the kind {parameter.kind}")
    if isinstance(value, int | float) and not is_flag:
        if parameter.minimum is not None and value < parameter.minimum:
            raise WorkloadError(source_name, field, f"{value} is below the minimum of {parameter.minimum:g}")
        if parameter.maximum is not None and value > parameter.maximum:
            raise WorkloadError(source_name, field, f"{value} is above the maximum of {parameter.maximum:g}")


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
    field = ".".join(str(part) for part in path)
    if name not in values:
        raise WorkloadError(data.source_name, field, f"{value}: no such parameter", data.line_of(path))
    if offset is None:
        return values[name]
    if isinstance(values[name], bool) or not isinstance(values[name], int):
        raise WorkloadError(data.source_name, field, f"{value}: {name} is not an integer", data.line_of(path))
    return values[name] + int(offset)
