"""A worker as the agent hears it, without any device: each method misbehaves in its own way.

describe answers; conditions never does; mount_image makes progress for a second, then answers; open_tunnel
ends the process; release writes no message; list answers with a wrong shape; remove fails as locked;
signal sends a notice and answers. Only the standard library.
"""

import json
import sys
import time
from typing import Any

DESCRIPTION = {
    "device_id": "u",
    "device_model": "iPhone17,1",
    "os_name": "iOS",
    "os_version": "18.5",
    "os_build": "b",
    "paired": True,
    "locked": False,
    "developer_mode": True,
    "boot_id": "b",
    "clock_s": 1.0,
    "utc_offset_s": 0.0,
    "virtual": True,
    "memory_bytes": None,
}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def carry_out(request: dict[str, Any]) -> None:
    number = request["id"]
    match request["method"]:
        case "describe":
            say({"id": number, "answer": DESCRIPTION})
        case "mount_image":
            for step in range(10):
                time.sleep(0.1)
                say({"id": number, "done": step, "total": 10})
            say({"id": number, "answer": {}})
        case "open_tunnel":
            sys.exit(1)
        case "release":
            sys.stdout.write("this is not a message\n")
            sys.stdout.flush()
        case "list":
            say({"id": number, "answer": {"names": 7}})
        case "remove":
            say({"id": number, "error": {"kind": "locked", "detail": "unlock it"}})
        case "signal":
            say({"notice": {"type": "process_exited", "pid": 5, "exit_code": 0, "signal": None}})
            say({"id": number, "answer": {}})


for line in sys.stdin:
    carry_out(json.loads(line))
