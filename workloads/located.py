"""YAML to plain data that still knows its lines. Untrusted: size, depth and aliases are limited."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from workloads.errors import WorkloadError

MAX_SOURCE_CHARACTERS: Final = 1_000_000
MAX_DEPTH: Final = 32

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a workload file and the name under which the person knows it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class LocatedData:
    """Plain data and, for each path in it, the line (from 1) where it stands."""

    source_name: str
    value: Any
    lines: dict[Path, int] = field(default_factory=dict)

    def line_of(self, path: Path) -> int | None:
        """The line of the nearest enclosing thing that the file holds."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def load_located(source: Source) -> LocatedData:
    """Parse one YAML document; raises WorkloadError with the line for anything else.

    Aliases are refused: a few lines of them can name gigabytes.
    """
    if len(source.text) > MAX_SOURCE_CHARACTERS:
        raise WorkloadError(source.name, "", f"the file has over {MAX_SOURCE_CHARACTERS} characters")
    try:
        for event in yaml.parse(source.text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1 if event.start_mark else None
                raise WorkloadError(source.name, "", "aliases (*name) are not allowed; write it out", line)
        node = yaml.compose(source.text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        raise WorkloadError(source.name, "", f"not valid YAML: {error.problem or error}", line) from error
    except yaml.YAMLError as error:
        raise WorkloadError(source.name, "", f"not valid YAML: {error}") from error
    if node is None:
        raise WorkloadError(source.name, "", "the file is empty; see `dynofarm workloads` for examples", 1)
    lines: dict[Path, int] = {}
    value = _Builder(source.name, lines).build(node, ())
    return LocatedData(source.name, value, lines)


class _Builder:
    """Walks the node tree once, noting lines; scalars get PyYAML's safe types."""

    def __init__(self, source_name: str, lines: dict[Path, int]) -> None:
        self._source_name = source_name
        self._lines = lines
        self._scalars = yaml.constructor.SafeConstructor()

    def build(self, node: yaml.Node, path: Path) -> Any:
        line = node.start_mark.line + 1
        self._lines.setdefault(path, line)
        if len(path) > MAX_DEPTH:
            raise WorkloadError(self._source_name, "", f"nested deeper than {MAX_DEPTH}", line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, (*path, index)) for index, child in enumerate(node.value)]
        return self._scalar(node)

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            return self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            line = node.start_mark.line + 1
            raise WorkloadError(self._source_name, "", f"cannot read the value: {error}", line) from error

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key: Hashable = self._scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise WorkloadError(self._source_name, ".".join(map(str, path)), "a key must be text", line)
            if key in result:
                raise WorkloadError(self._source_name, ".".join(map(str, (*path, key))), "given twice", line)
            self._lines[(*path, key)] = line
            result[key] = self.build(value_node, (*path, key))
        return result
