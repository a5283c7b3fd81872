"""The workloads that come with dynofarm (workloads/library) and the texts they use."""

import pathlib
from functools import cache
from types import MappingProxyType
from typing import Final

from pydantic import ValidationError

from contract.rest import WorkloadParameter, WorkloadView
from workloads.errors import WorkloadError
from workloads.located import LocatedData, Path, Source, load_located
from workloads.template import Header

LIBRARY: Final = pathlib.Path(__file__).parent / "library"
TEXTS: Final = pathlib.Path(__file__).parent / "texts"

_PROBLEMS: Final = MappingProxyType({"extra_forbidden": "unknown key; see workloads/README.md for the keys"})
# What to write where something else than a mapping stands, by the name of the template.
_SHAPES: Final = MappingProxyType(
    {
        "TextUse": "write `{text: NAME}`, with a name of `texts`",
        "Text": 'write `{text: "…"}`, or `{file: NAME}` for one of workloads/texts',
        "OutputUse": "write `{agent: NAME, call: NUMBER}`",
        "Tool": "write `{name: NAME, wait_s: SECONDS, result: {text: NAME}}`",
        "Parameter": "write `{kind: integer, default: 3, description: …}`",
    }
)


def names() -> list[str]:
    """Names of all built-in workloads, sorted."""
    return sorted(path.stem for path in LIBRARY.glob("*.yaml"))


def named_source(name: str) -> Source:
    """The built-in workload of this name; raises WorkloadError that lists the known ones.

    Only listed names are opened, so a name can never be a path.
    """
    if name not in names():
        raise WorkloadError(name, "workload.name", f"no such workload; known: {', '.join(names())}")
    path = LIBRARY / f"{name}.yaml"
    return Source(path.name, path.read_text(encoding="utf-8"))


@cache
def built_in_text(name: str) -> str | None:
    """A text of workloads/texts by name, or None."""
    known = {path.stem: path for path in TEXTS.glob("*.txt")}
    return known[name].read_text(encoding="utf-8").strip() + "\n" if name in known else None


def read_header(data: LocatedData) -> Header:
    """Name, title and parameters of a file; raises WorkloadError with file and line."""
    if not isinstance(data.value, dict):
        raise WorkloadError(data.source_name, "", "the file must be a mapping with the key `workload`", 1)
    try:
        return Header.model_validate(data.value)
    except ValidationError as error:
        raise first_problem(data, error) from error


def first_problem(data: LocatedData, error: ValidationError) -> WorkloadError:
    """The most telling of pydantic's complaints with its place in the file.

    A misspelt key is both unknown and missing; the unknown one is where the person must look.
    """
    problems = error.errors(include_url=False)
    first = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    path: Path = ()
    for part in first["loc"]:
        # pydantic also names the members of a union that it tried; those are not in the file.
        if (*path, part) in data.lines:
            path = (*path, part)
    field = ".".join(map(str, path))
    if first["type"] == "missing":
        missing = str(first["loc"][-1])
        return WorkloadError(data.source_name, field, f"the key `{missing}` is missing", data.line_of(path))
    problem = _PROBLEMS.get(first["type"], str(first["msg"]).removeprefix("Value error, "))
    if first["type"] == "model_type":
        problem = _SHAPES.get(first.get("ctx", {}).get("class_name", ""), "write a mapping of keys to values")
    return WorkloadError(data.source_name, field, problem, data.line_of(path))


def catalogue() -> list[WorkloadView]:
    """Every built-in workload with its parameters, by name."""
    views = []
    for name in names():
        header = read_header(load_located(named_source(name)))
        parameters = [
            WorkloadParameter(name=key, **parameter.model_dump())
            for key, parameter in header.parameters.items()
        ]
        views.append(
            WorkloadView(
                name=header.workload,
                version=header.version,
                title=header.title,
                description=header.description,
                parameters=parameters,
            )
        )
    return views
