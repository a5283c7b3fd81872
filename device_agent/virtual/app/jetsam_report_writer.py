"""JetsamEvent reports (bug_type 298) in the shape of the system's own, with numbers of the device."""

import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from device_agent.virtual.app.report_document import (
    PAGE_BYTES,
    ReportDocument,
    file_name,
    header,
    new_incident,
    os_version,
    reporter_key,
    timestamp,
)
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.device.process_table import DeviceProcess, SystemProcess

_NAME_LENGTH: Final = 32
_MACH_TICKS_PER_S: Final = 24_000_000
_SEES_CS_TRUST_LEVEL: Final = 18


@dataclass(frozen=True, slots=True)
class JetsamKill:
    """One victim, as it was before it died."""

    pid: int
    name: str
    reason: str
    band: int
    footprint_bytes: int
    peak_bytes: int
    age_s: float

    @classmethod
    def of(cls, process: DeviceProcess, reason: str) -> "JetsamKill":
        """What the report will say of it."""
        return cls(
            process.pid,
            process.name,
            reason,
            process.band,
            process.footprint_bytes,
            process.peak_bytes,
            process.age_s,
        )

    def with_pid(self, pid: int) -> "JetsamKill":
        """The same under another number."""
        return dataclasses.replace(self, pid=pid)


def jetsam_report(device: VirtualDevice, kills: Sequence[JetsamKill]) -> ReportDocument:
    """A report of one snapshot: the victims carry a reason, the largest process may be another one."""
    incident = new_incident()
    victims = [_victim_entry(device, kill, nth) for nth, kill in enumerate(kills, 1)]
    killed = {kill.pid for kill in kills}
    living = [_entry(device, each) for each in device.processes.all() if each.pid not in killed]
    entries = [*victims, *living]
    largest = max(entries, key=lambda entry: int(entry["rpages"]))
    body = {
        "crashReporterKey": reporter_key(device),
        "kernel": f"Darwin Kernel Version {device.record.version.darwin}: virtual",
        "product": device.record.product_type,
        "incident": incident,
        "date": timestamp(device),
        "build": os_version(device),
        "timeDelta": 3,
        "memoryStatus": _memory_status(device, entries),
        "largestProcess": largest["name"],
        "genCounter": 1,
        "processes": entries,
        "virtual": True,
    }
    name = file_name(device, "JetsamEvent")
    return ReportDocument(name, "298", "298_JetsamEvent", header(device, "298", incident), body)


def _victim_entry(device: VirtualDevice, kill: JetsamKill, nth: int) -> dict[str, Any]:
    entry = _common(device, kill.pid, kill.name)
    return entry | {
        "states": ["frontmost"] if kill.band >= 100 else ["suspended"],
        "killDelta": 400 + nth,
        "genCount": 0,
        "age": int(kill.age_s * _MACH_TICKS_PER_S),
        "purgeable": 0,
        "fds": 50,
        "rpages": kill.footprint_bytes // PAGE_BYTES,
        "lifetimeMax": kill.peak_bytes // PAGE_BYTES,
        "reason": kill.reason,
        "cpuTime": round(kill.age_s / 3, 6),
        "priority": kill.band,
        "idleDelta": 1000 * nth,
        "mem_regions": 1200,
        "coalition": 600 + kill.pid,
    }


def _entry(device: VirtualDevice, process: DeviceProcess) -> dict[str, Any]:
    states = list(process.states) if isinstance(process, SystemProcess) else ["frontmost"]
    return _common(device, process.pid, process.name) | {
        "states": states,
        "age": int(process.age_s * _MACH_TICKS_PER_S),
        "purgeable": 0,
        "fds": 25,
        "rpages": process.footprint_bytes // PAGE_BYTES,
        "lifetimeMax": process.peak_bytes // PAGE_BYTES,
        "cpuTime": round(process.age_s / 90, 6),
        "priority": process.band,
        "mem_regions": 300,
    }


def _common(device: VirtualDevice, pid: int, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
        "name": name[:_NAME_LENGTH],
        "pid": pid,
        # The key really ends in a colon.
        "freeze_skip_reason:": "none",
        "csFlags": 570425857,
    }
    if device.record.version.major >= _SEES_CS_TRUST_LEVEL:
        entry["csTrustLevel"] = 7
    return entry


def _memory_status(device: VirtualDevice, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    pages = device.record.model.memory_bytes // PAGE_BYTES
    anonymous = min(sum(int(entry["rpages"]) for entry in entries), pages * 3 // 4)
    wired, file_backed = pages // 8, pages // 12
    active = anonymous * 2 // 3
    return {
        "compressorSize": pages // 16,
        "compressions": 1_203_311,
        "decompressions": 422_018,
        "uncompressed": pages // 6,
        "zoneMapCap": 1 << 30,
        "zoneMapSize": 160 << 20,
        "largestZone": "APFS_4K_OBJS",
        "largestZoneSize": 41 << 20,
        "pageSize": PAGE_BYTES,
        "memoryPages": {
            "active": active,
            "inactive": anonymous - active + file_backed,
            "anonymous": anonymous,
            "fileBacked": file_backed,
            "wired": wired,
            "purgeable": 90,
            "speculative": 1100,
            "throttled": 0,
            "free": max(2900, pages - anonymous - wired - file_backed - pages // 16),
        },
    }
