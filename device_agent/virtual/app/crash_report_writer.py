"""Crash reports (bug_type 309) in the shape of the system's own: by a signal, and by the watchdog."""

import signal
from typing import Any, Final

from device_agent.virtual.app.app_process import AppProcess
from device_agent.virtual.app.report_document import (
    ReportDocument,
    file_name,
    header,
    new_incident,
    os_version,
    reporter_key,
    timestamp,
)
from device_agent.virtual.device.device import VirtualDevice

WATCHDOG_CODE: Final = 0x8BADF00D
_EXCEPTION_OF: Final = {
    signal.SIGSEGV: ("EXC_BAD_ACCESS", "KERN_INVALID_ADDRESS at 0x0000000000000000"),
    signal.SIGBUS: ("EXC_BAD_ACCESS", "KERN_PROTECTION_FAILURE at 0x0000000000000000"),
    signal.SIGILL: ("EXC_BAD_INSTRUCTION", "EXC_ARM_UNDEFINED"),
    signal.SIGTRAP: ("EXC_BREAKPOINT", "EXC_ARM_BREAKPOINT"),
    signal.SIGFPE: ("EXC_ARITHMETIC", "EXC_ARM_FP_DZ"),
    signal.SIGABRT: ("EXC_CRASH", ""),
}


def crash_report(device: VirtualDevice, app: AppProcess, number: signal.Signals) -> ReportDocument:
    """A crash by one of the signals that count as one."""
    kind, subtype = _EXCEPTION_OF.get(number, ("EXC_CRASH", ""))
    exception = {"type": kind, "signal": number.name, "codes": "0x0000000000000001, 0x0000000000000000"}
    if subtype:
        exception["subtype"] = subtype
    termination = {
        "namespace": "SIGNAL",
        "flags": 0,
        "code": int(number),
        "indicator": f"{signal.strsignal(number)}: {int(number)}",
        "byProc": "exc handler",
        "byPid": app.pid,
    }
    return _document(device, app, exception, termination)


def watchdog_report(device: VirtualDevice, app: AppProcess) -> ReportDocument:
    """A kill by SpringBoard's watchdog."""
    exception = {"type": "EXC_CRASH", "signal": "SIGKILL", "codes": "0x0000000000000000, 0x0000000000000000"}
    termination = {
        "namespace": "FRONTBOARD",
        "flags": 6,
        "code": WATCHDOG_CODE,
        "reasons": [
            f"<RBSTerminateContext| domain:10 code:0x{WATCHDOG_CODE:X} explanation:[app<{app.bundle_id}>:"
            f"{app.pid}] Failed to terminate gracefully after 5.0s ProcessVisibility: Foreground>"
        ],
    }
    return _document(device, app, exception, termination)


def _document(
    device: VirtualDevice, app: AppProcess, exception: dict[str, Any], termination: dict[str, Any]
) -> ReportDocument:
    incident = new_incident()
    installed = device.record.apps.get(app.bundle_id)
    info = installed.info if installed is not None else {}
    first_line = header(device, "309", incident) | {
        "app_name": app.name,
        "name": app.name,
        "app_version": info.get("CFBundleShortVersionString", "1.0"),
        "build_version": info.get("CFBundleVersion", "1"),
        "bundleID": app.bundle_id,
        "platform": 2,
        "slice_uuid": "00000000-0000-0000-0000-000000000000",
    }
    body = {
        "uptime": 41000,
        "procRole": "Foreground",
        "version": 2,
        "deployVersion": 210,
        "modelCode": device.record.product_type,
        "osVersion": {"train": os_version(device), "build": device.record.version.build},
        "captureTime": timestamp(device),
        "incident": incident,
        "crashReporterKey": reporter_key(device),
        "pid": app.pid,
        "procName": app.name,
        "bundleInfo": {"CFBundleIdentifier": app.bundle_id},
        "cpuType": "ARM-64",
        "exception": exception,
        "termination": termination,
        "faultingThread": 0,
        "threads": [
            {
                "id": 1,
                "triggered": True,
                "threadState": {"x": [{"value": 0}], "pc": {"value": 4294967296}},
                "frames": [{"imageOffset": 0, "imageIndex": 0}],
            }
        ],
        "usedImages": [{"base": 4294967296, "name": app.name, "path": f"/virtual/{app.name}"}],
        "virtual": True,
    }
    return ReportDocument(file_name(device, app.name), "309", f"309_{app.name}", first_line, body)
