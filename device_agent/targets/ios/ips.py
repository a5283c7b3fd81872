"""The two JSON documents of an `.ips` report, read from bytes that nobody vouches for.

Line 1 is a header, the rest a body. A report that was read while it was written is cut: what had arrived in
whole is kept and the report says so. Other than ReportUnreadableError nothing is raised, whatever the bytes.
Source: the shape of bug_type 298 and 309 files (Apple, "Interpreting the JSON format of a crash report").
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any, ClassVar, Final

from contract.failures import Fault
from contract.model import storable_text
from device_agent.floor.errors import AgentError

MAX_REPORT_BYTES: Final = 4 << 20
MAX_DEPTH: Final = 64
MAX_TEXT_CHARS: Final = 1000
MAX_COUNT: Final = 2**53
"""Larger whole numbers are not a count: events cannot carry them."""

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
_CLOSER: Final = {"{": "}", "[": "]"}
_YEARS: Final = range(2000, 2200)


class ReportUnreadableError(AgentError):
    """The bytes are not a report that this reader knows; the message says why."""

    kind: ClassVar[str] = "report-unreadable"
    fault: ClassVar[Fault] = Fault.DEVICE
    retryable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Ips:
    """Header and body. complete False: the body was cut; members that had arrived in whole are there."""

    header: Mapping[str, Any]
    body: Mapping[str, Any]
    complete: bool

    @property
    def bug_type(self) -> str:
        """The kind of report, e.g. "298"; "" when nobody says it."""
        return text_of(self.header, "bug_type") or text_of(self.body, "bug_type") or ""


def read_ips(content: bytes) -> Ips:
    """Both documents; ReportUnreadableError for anything else."""
    if len(content) > MAX_REPORT_BYTES:
        raise ReportUnreadableError(f"it has {len(content)} bytes, at most {MAX_REPORT_BYTES} are read")
    text = content.decode("utf-8", "replace").lstrip("\N{ZERO WIDTH NO-BREAK SPACE}")
    documents = _documents(text)
    if not documents or not documents[0].complete:
        raise ReportUnreadableError("its first document is missing or cut")
    if len(documents) == 1:
        raise ReportUnreadableError("there is no second document; the report may not be written yet")
    header, body = documents
    return Ips(_object(header.text, "header"), _object(body.text, "body"), body.complete)


@dataclass(frozen=True, slots=True)
class _Document:
    text: str
    complete: bool


def _documents(text: str) -> list[_Document]:
    """The first two documents; the last may be cut, and is then closed after its last whole member."""
    found: list[_Document] = []
    stack: list[str] = []
    start = whole = 0
    for token in _TOKEN.finditer(text):
        sign = token.group()
        if sign[0] == '"' or (sign == "," and not stack):
            continue
        # Up to here every member is whole: before a comma, or after a bracket of either kind.
        whole = token.start() if sign == "," else token.end()
        if sign in _CLOSER:
            start = token.start() if not stack else start
            stack.append(sign)
            if len(stack) > MAX_DEPTH:
                raise ReportUnreadableError(f"it is nested deeper than {MAX_DEPTH}")
        elif sign != ",":
            if not stack or _CLOSER[stack.pop()] != sign:
                raise ReportUnreadableError(f"{sign!r} closes nothing at character {token.start()}")
            if not stack:
                found.append(_Document(text[start:whole], complete=True))
                if len(found) == 2:
                    return found
    if stack:
        found.append(_Document(text[start:whole] + _closing(stack), complete=False))
    return found


def _closing(stack: list[str]) -> str:
    return "".join(_CLOSER[sign] for sign in reversed(stack))


def _object(text: str, what: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ReportUnreadableError(f"its {what} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ReportUnreadableError(f"its {what} is not an object")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def text_of(holder: Mapping[str, Any], key: str) -> str | None:
    """A member that is a text, cut to MAX_TEXT_CHARS and fit to be stored; None for any other."""
    value = holder.get(key)
    return storable_text(value[:MAX_TEXT_CHARS]) if isinstance(value, str) else None


def count_of(holder: Mapping[str, Any], key: str) -> int | None:
    """A member that counts something: a whole number from 0 below MAX_COUNT; None for any other."""
    value = holder.get(key)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT
    return value if is_count else None


def seconds_of(holder: Mapping[str, Any], key: str) -> float | None:
    """A member that is a finite number from 0; None for any other."""
    value = holder.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_COUNT:
        return None
    return float(value) if isfinite(value) else None


def object_of(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A member that is an object; an empty one for any other."""
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def time_of(holder: Mapping[str, Any], key: str) -> datetime | None:
    """A member that is a time of the device's clock with its offset, in a plausible year; else None."""
    text = text_of(holder, key) or ""
    moment = _time(text, "%Y-%m-%d %H:%M:%S.%f %z") or _time(text, "%Y-%m-%d %H:%M:%S %z")
    # Times at the edge of the calendar cannot be compared in UTC.
    return moment if moment is not None and moment.year in _YEARS else None


def _time(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form)  # noqa: DTZ007  (both forms end in %z)
    except ValueError:
        return None
