"""Faults played one after the other on each of several devices, on all of them at the same time.

Every device is the neighbour of the others: what disturbs one shows in the outcome of another.
"""

import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from contract.failures import FailureReason
from tests.fakes.controller import Attempt
from tests.fakes.device_rig import DeviceRig


@dataclass(frozen=True)
class Cell:
    """A fault: when it is played, with what options, and what must come of it. reason None: it succeeds."""

    fault: str
    reason: FailureReason | None
    options: dict[str, Any] = field(default_factory=dict)
    at: str = "event:20"
    script: dict[str, Any] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    retried: bool | None = None
    keeps_events: bool = True
    """Whether all that the app wrote can still be had from the device."""
    in_short: bool = True


@dataclass
class Played:
    """What came of a cell. broke: a traceback, when the test itself did not come to an end."""

    attempt: Attempt | None = None
    lost: int = 0
    broke: str = ""


def play(rig: DeviceRig, lanes: dict[str, Sequence[tuple[str, Cell]]]) -> dict[tuple[str, str], Played]:
    """lanes: by UDID, the named cells of that device. Every cell has its outcome in the answer."""
    outcomes: dict[tuple[str, str], Played] = {}

    def run(udid: str, cells: Sequence[tuple[str, Cell]]) -> None:
        for name, cell in cells:
            outcomes[udid, name] = _play_one(rig, udid, cell)

    threads = [threading.Thread(target=run, args=lane, daemon=True) for lane in lanes.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def _play_one(rig: DeviceRig, udid: str, cell: Cell) -> Played:
    played = Played()
    try:
        rig.wait_for_report(udid, ready=True)
        rig.devices.fault(udid, cell.fault, at=cell.at or None, **cell.options)
        spec = rig.submit(udid, **cell.script)
        played.attempt = rig.attempt(spec)
        played.lost = len(rig.lost(played.attempt))
        rig.heal(udid)
        rig.wait_for_report(udid, ready=True)
        rig.devices.wait_until(udid, lambda view: view.counters.apps == 0, timeout_s=40)
    except Exception:
        played.broke = traceback.format_exc()
    return played
