"""Reports of a device for tests: our own numbers in the shape that each version of the system writes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

PAGE = 16384
APP = "Runner"


def ips(header: Mapping[str, Any], body: Mapping[str, Any]) -> bytes:
    """Two JSON documents, one line and then indented ones."""
    return (json.dumps(header) + "\n" + json.dumps(body, indent=2)).encode()


def entry(name: str | None = APP, pid: int | None = 300, **more: Any) -> dict[str, Any]:
    """A process; a victim when it has a reason. None leaves a member out."""
    members = {
        "uuid": "11111111-2222-3333-4444-555555555555",
        "states": ["frontmost"],
        "rpages": 1000,
        "lifetimeMax": 900,
        "priority": 100,
        "cpuTime": 1.5,
        "freeze_skip_reason:": "none",
        "name": name,
        "pid": pid,
        **more,
    }
    return {key: value for key, value in members.items() if value is not None}


def jetsam(
    *processes: Mapping[str, Any],
    taken: str = "2026-11-29 12:10:00.25 +0100",
    **body: Any,
) -> bytes:
    """A JetsamEvent as iOS 18 writes it; members of the body may be replaced, or left out by None."""
    members: dict[str, Any] = {
        "build": "iPhone OS 18.5 (22F76)",
        "product": "iPhone17,1",
        "incident": "AAAAAAAA-0000-0000-0000-000000000000",
        "crashReporterKey": "0" * 40,
        "date": taken,
        "bug_type": "298",
        "timeDelta": 4,
        "memoryStatus": {
            "pageSize": PAGE,
            "compressorSize": 7,
            "uncompressed": 21,
            "memoryPages": {"free": 11, "active": 12, "inactive": 13, "wired": 14},
        },
        "largestProcess": "kernel_task",
        "processes": list(processes),
        **body,
    }
    header = {
        "bug_type": "298",
        "timestamp": taken,
        "os_version": "iPhone OS 18.5 (22F76)",
        "roots_installed": 0,
        "incident_id": "AAAAAAAA-0000-0000-0000-000000000000",
    }
    return ips(header, {key: value for key, value in members.items() if value is not None})


def victim(reason: str = "per-process-limit", **more: Any) -> dict[str, Any]:
    """Our app, killed."""
    return entry(reason=reason, **more)


def crash(
    taken: str = "2026-11-29 12:10:00.2500 +0100",
    signal: str = "SIGSEGV",
    termination: Mapping[str, Any] | None = None,
    **body: Any,
) -> bytes:
    """A crash report as iOS 15 and later write it."""
    header = {
        "app_name": APP,
        "timestamp": taken,
        "bug_type": "309",
        "os_version": "iPhone OS 18.5 (22F76)",
        "incident_id": "BBBBBBBB-0000-0000-0000-000000000000",
    }
    members: dict[str, Any] = {
        "procName": APP,
        "pid": 300,
        "modelCode": "iPhone17,1",
        "captureTime": taken,
        "procLaunch": "2026-11-29 12:00:01.0000 +0100",
        "exception": {"type": "EXC_BAD_ACCESS", "signal": signal, "codes": "0x1, 0x0"},
        "termination": termination or {"flags": 0, "code": 11, "namespace": "SIGNAL", "indicator": "fault"},
        "threads": [{"frames": [{"imageOffset": 1, "imageIndex": 0}]}],
        **body,
    }
    return ips(header, {key: value for key, value in members.items() if value is not None})


WATCHDOG: Mapping[str, Any] = {"code": 2343432205, "namespace": "FRONTBOARD", "flags": 6}
HEAT: Mapping[str, Any] = {"code": "0xc00010ff", "namespace": "SPRINGBOARD"}
FORCE_QUIT: Mapping[str, Any] = {"code": 0xDEADFA11, "namespace": "FRONTBOARD"}
OUT_OF_MEMORY: Mapping[str, Any] = {"code": 7, "namespace": "JETSAM"}


def cut(content: bytes, shares: Sequence[float]) -> list[bytes]:
    """The report as far as it had been written at each share of its length."""
    return [content[: int(len(content) * share)] for share in shares]
