"""YAML to plain data that still knows its lines. Untrusted: size, depth, count and aliases are limited.

Values are those of YAML 1.2.2 (10.3, the core schema). What YAML 1.1 reads
differently (`010`, `1:30`, `yes`) is refused, since a person may mean either.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

import yaml

from contract.model import is_storable
from workloads.errors import WorkloadError

MAX_SOURCE_CHARACTERS: Final = 1_000_000
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 50_000
"""Keys and values of a file together: each costs some 30 microseconds to read."""
INTEGER_LIMIT: Final = 2**63

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

    def error(self, path: Path, problem: str) -> WorkloadError:
        """What is wrong at a place of the file."""
        return WorkloadError(self.source_name, ".".join(map(str, path)), problem, self.line_of(path))


def load_located(source: Source) -> LocatedData:
    """Parse one YAML document; raises WorkloadError with the line for anything else.

    Aliases are refused: a few lines of them can name gigabytes. Every limit is looked at while the parser
    reads, so a file past one costs no more than the part before it.
    """
    if len(source.text) > MAX_SOURCE_CHARACTERS:
        raise WorkloadError(source.name, "", f"the file has over {MAX_SOURCE_CHARACTERS} characters")
    reader = _Reader(source.name, yaml.parse(source.text, Loader=yaml.SafeLoader))
    try:
        value = reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        raise WorkloadError(source.name, "", f"not valid YAML: {error.problem or error}", line) from error
    except yaml.YAMLError as error:
        raise WorkloadError(source.name, "", f"not valid YAML: {error}") from error
    return LocatedData(source.name, value, reader.lines)


class _Reader:
    """Builds data from the parser's events, noting lines; it never goes deeper than MAX_DEPTH."""

    def __init__(self, source_name: str, events: Iterator[yaml.Event]) -> None:
        self._source_name = source_name
        self._events = events
        self._values = 0
        self.lines: dict[Path, int] = {}

    def document(self) -> Any:
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise self._error((), "the file is empty; see `dynofarm workloads` for examples", 1)
        value = self._value(next(self._events), ())
        next(self._events)
        following = next(self._events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise self._error((), "a second document begins here; write one per file", _line(following))
        return value

    def _value(self, event: yaml.Event, path: Path) -> Any:
        line = _line(event)
        self.lines.setdefault(path, line)
        self._values += 1
        if self._values > MAX_VALUES:
            raise self._error((), f"the file has over {MAX_VALUES} values", line)
        if len(path) > MAX_DEPTH:
            raise self._error((), f"nested deeper than {MAX_DEPTH}", line)
        if isinstance(event, yaml.AliasEvent):
            raise self._error((), "aliases (*name) are not allowed; write it out", line)
        if (tag := getattr(event, "tag", None)) is not None:
            raise self._error(path, f"tags ({tag}) are not allowed; write the plain value", line)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        return self._mapping(path)

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> Any:
        try:
            value = plain_value(event.value) if event.style is None else event.value
        except ValueError as error:
            raise self._error(path, str(error), _line(event)) from error
        if isinstance(value, str) and not is_storable(value):
            problem = "this text has a NUL character or half of a surrogate pair; remove it"
            raise self._error(path, problem, _line(event))
        return value

    def _sequence(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, (*path, len(items))))
        return items

    def _mapping(self, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = _line(event)
            key = self._scalar(event, path) if isinstance(event, yaml.ScalarEvent) else None
            if not isinstance(key, str):
                raise self._error(path, "a key must be text", line)
            if key in result:
                raise self._error((*path, key), "given twice", line)
            self.lines[(*path, key)] = line
            result[key] = self._value(next(self._events), (*path, key))
        return result

    def _error(self, path: Path, problem: str, line: int) -> WorkloadError:
        return WorkloadError(self._source_name, ".".join(map(str, path)), problem, line)


def _line(event: yaml.Event) -> int:
    mark = event.start_mark
    return 1 if mark is None else mark.line + 1


def _integer(text: str) -> int:
    return check_integer(int(text))


def check_integer(value: int) -> int:
    """The value; ValueError where 64 bits do not hold it."""
    if not -INTEGER_LIMIT <= value < INTEGER_LIMIT:
        raise ValueError("this integer does not fit in 64 bits")
    return value


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("this number is too large")
    return value


def _refused(advice: str) -> Callable[[str], Any]:
    def refuse(text: str) -> Any:
        raise ValueError(f"`{text}` {advice}")

    return refuse


# Longer ones are text: the patterns below are not made for megabytes.
_LONGEST_WORD: Final = 64

# The first that matches the whole text wins; what none matches is text.
_PLAIN: Final = tuple(
    (re.compile(pattern), read)
    for pattern, read in (
        (r"~|null|Null|NULL|", lambda text: None),
        (r"true|True|TRUE", lambda text: True),
        (r"false|False|FALSE", lambda text: False),
        (r"[-+]?(0|[1-9][0-9]*)", _integer),
        (r"0x[0-9a-fA-F]+", lambda text: check_integer(int(text, 16))),
        (r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", _number),
        (
            r"(?i:yes|no|on|off)",
            _refused(
                "is true or false in YAML 1.1 and text in 1.2; write true or false, or put it in quotes"
            ),
        ),
        (
            r"[-+]?0[0-9_]+|[-+]?0[bB][01_]+|[-+]?0[xX][0-9a-fA-F_]*_?|[-+]?0o[0-7]+|"
            r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?|"
            r"[-+]?0[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?",
            _refused("is another number in YAML 1.1 than in 1.2; write plain decimal digits, or quote it"),
        ),
        (
            r"(?i:[-+]?\.inf|\.nan)",
            _refused("is not a number that can be used here; write a finite one"),
        ),
    )
)


def plain_value(text: str) -> Any:
    """The value of an unquoted scalar; ValueError, with what to write, for one that has no single meaning."""
    if len(text) > _LONGEST_WORD:
        return text
    for pattern, read in _PLAIN:
        if pattern.fullmatch(text):
            return read(text)
    return text
