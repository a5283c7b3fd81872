"""Draws the tables: `python -m controller.states.diagram` writes docs/attempts.md, devices.md and jobs.md.

A test fails when a committed page is stale.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from controller.states.devices import DEVICE_MACHINE
from controller.states.machine import Machine
from controller.states.work import ATTEMPT_MACHINE, JOB_MACHINE, OUTCOME_OF_CAUSE, RUN_MACHINE

_HEAD: Final = "<!-- Written by controller/states/diagram.py from the table; do not edit. -->"
_PROSE: Final = MappingProxyType(
    {
        "attempts": "An attempt is one try of a job on one device. Every state before the terminal "
        "ones has a deadline. A late result may still salvage a lost attempt, if nothing newer was granted.",
        "devices": "A device has one state. While its agent works on it the state has a deadline; `ready`, "
        "`blocked`, `maintenance`, `absent` and `lost` wait for work, a person or the device. Nothing is "
        "ever granted before the device's `hold_until`: the previous lease holder may still be using it.",
        "jobs": "A run is what a person submits, a job one cell of it. A job is tried until it is done; "
        "a done job changes only by salvage, and only before its run is completed.",
    }
)


def pages() -> Mapping[str, str]:
    """File name to text of every generated page."""
    outcomes = "\n".join(f"- `{cause}`: {outcome}" for cause, outcome in OUTCOME_OF_CAUSE.items())
    return {
        "attempts.md": _page("Attempts", _PROSE["attempts"], _section(ATTEMPT_MACHINE)),
        "devices.md": _page("Devices", _PROSE["devices"], _section(DEVICE_MACHINE)),
        "jobs.md": _page(
            "Runs and jobs",
            _PROSE["jobs"],
            "## Job\n\n" + _section(JOB_MACHINE),
            f"A job's outcome follows from the last cause:\n\n{outcomes}",
            "## Run\n\n" + _section(RUN_MACHINE),
        ),
    }


def write(folder: Path) -> None:
    """Write every page into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([_HEAD, f"# {title}", *parts]) + "\n"


def _section(machine: Machine[Any, Any]) -> str:
    """A drawing and the table behind it."""
    edges: dict[tuple[StrEnum, StrEnum], list[str]] = {}
    for (source, cause), target in machine.transitions.items():
        edges.setdefault((source, target), []).append(cause.value)
    drawing = [
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {machine.initial}",
        *(f"    {source} --> {target}: {', '.join(causes)}" for (source, target), causes in edges.items()),
        *(f"    {state} --> [*]" for state in sorted(machine.terminal)),
        "```",
    ]
    rows = [
        f"| {source} | `{cause}` | {target} | {machine.meanings[cause]} |"
        for (source, cause), target in machine.transitions.items()
    ]
    terminal = ", ".join(sorted(machine.terminal))
    table = ["| From | Cause | To | When |", "|--|--|--|--|", *rows]
    return "\n".join([*drawing, "", f"Terminal: {terminal}.", "", *table])


if __name__ == "__main__":
    write(Path(__file__).resolve().parents[2] / "docs")
