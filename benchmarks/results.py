"""The raw lines of a session, appended as they come: what a broken-off session has measured stays."""

import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

RESUME_WITHIN: Final = timedelta(hours=6)
"""A machine drifts: runs that lie further apart are not compared with each other."""

_PATH: Final = re.compile(r"(?<![\w.])/(?:[\w.@+-]+/)+([\w.@+-]+)")
Line = dict[str, Any]


@dataclass(slots=True)
class Session:
    """Lines of one session of one shape. about: machine, weights, work, commit; equal within a session."""

    path: Path
    session: str
    about: Mapping[str, Any]
    lines: list[Line] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Appends it to the file and to the session."""
        whole = {"session": self.session, "at": datetime.now(UTC).isoformat(timespec="seconds"), **line}
        # What a process says names folders of this machine, which mean nothing elsewhere.
        text = _PATH.sub(r"…/\1", json.dumps(whole, ensure_ascii=False))
        self.lines.append(json.loads(text))
        _append(self.path, text)

    @property
    def runs(self) -> list[Line]:
        """The lines of runs."""
        return [line for line in self.lines if line["kind"] == "run"]

    def latest(self, kind: str) -> Line | None:
        """The last line of a kind."""
        return next((line for line in reversed(self.lines) if line["kind"] == kind), None)


def open_session(path: Path, about: Mapping[str, Any], now: datetime) -> Session:
    """The file's last session where it is of the same things and recent, else a new one."""
    lines = read_lines(path)
    last = lines[-1]["session"] if lines else None
    own = [line for line in lines if line["session"] == last]
    if own and own[0]["kind"] == "session" and own[0]["about"] == dict(about):
        recent = now - datetime.fromisoformat(own[-1]["at"]) < RESUME_WITHIN
        if recent:
            return Session(path, str(last), about, own)
    return new_session(path, about)


def new_session(path: Path, about: Mapping[str, Any]) -> Session:
    """Another session at the end of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    session = Session(path, uuid.uuid4().hex[:12], dict(about))
    session.add({"kind": "session", "about": dict(about)})
    return session


def last_session(path: Path) -> Session | None:
    """What the document is made of when nothing is to be measured; None without a file."""
    lines = read_lines(path)
    if not lines:
        return None
    own = [line for line in lines if line["session"] == lines[-1]["session"]]
    return Session(path, own[0]["session"], own[0]["about"], own)


def read_lines(path: Path) -> list[Line]:
    """Every whole line; a last one that was cut is left out."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1] if line]


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
