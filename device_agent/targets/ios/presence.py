"""Which devices are attached and may be used, from the daemon's list; pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from contract.ids import DeviceId
from device_agent.targets.ios.usbmux import MuxEntry


@dataclass(frozen=True, slots=True)
class Presence:
    """An attached device. mux_id: of its cable; another one means that it was plugged anew.

    problem: why it must not be used, "" for nothing.
    """

    udid: DeviceId
    mux_id: int
    problem: str = ""


TWINS = "two devices with this serial number are attached; unplug one of them"
WIRELESS = "it is attached over Wi-Fi only, which spoils measurements; plug in its cable"


def presences(entries: Iterable[MuxEntry]) -> dict[DeviceId, Presence]:
    """One per serial: the cable goes before Wi-Fi, and two cables with one serial block each other.

    Nothing tells twins apart: whoever opens a connection by serial gets the first that is listed.
    """
    by_udid: defaultdict[DeviceId, list[MuxEntry]] = defaultdict(list)
    for entry in entries:
        by_udid[entry.udid].append(entry)
    return {udid: _presence(udid, found) for udid, found in by_udid.items()}


def _presence(udid: DeviceId, entries: list[MuxEntry]) -> Presence:
    cables = sorted(entry.mux_id for entry in entries if entry.connection == "USB")
    if len(cables) > 1:
        return Presence(udid, cables[-1], TWINS)
    if not cables:
        return Presence(udid, max(entry.mux_id for entry in entries), WIRELESS)
    return Presence(udid, cables[0])
