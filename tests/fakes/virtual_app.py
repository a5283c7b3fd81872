"""A small app for emulated devices: it serves lines on its socket and does what FAKE_APP says.

FAKE_APP is JSON in its environment. Keys: lines (how many it serves), line_s (pause before each), grow_bytes
(memory it takes, after grow_after_s), exit (code with which it ends when all is served), say (a line for
standard output), ready_s (pause before it listens). It ends at SIGTERM with 3, like the runtime.
Only the standard library: a test starts many.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--attempt-dir", "--model-path", "--socket"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    plan = json.loads(os.environ.get("FAKE_APP", "{}"))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
    sys.stdout.write(f"{plan.get('say', 'started')} {options.attempt_dir} {options.model_path}\n")
    sys.stdout.flush()
    time.sleep(plan.get("ready_s", 0.0))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(options.socket)
    listener.listen()
    threading.Thread(target=grow, args=(plan,), daemon=True).start()
    while True:
        connection, _ = listener.accept()
        with connection:
            serve(connection, plan)
        if "exit" in plan:
            os._exit(plan["exit"])


def grow(plan: dict[str, float]) -> None:
    time.sleep(plan.get("grow_after_s", 0.0))
    taken = [bytearray(b"x") * (1 << 20) for _ in range(int(plan.get("grow_bytes", 0)) >> 20)]
    while taken:
        time.sleep(60.0)


def serve(connection: socket.socket, plan: dict[str, float]) -> None:
    try:
        for number in range(int(plan.get("lines", 0))):
            time.sleep(plan.get("line_s", 0.0))
            connection.sendall(json.dumps({"line": number + 1}).encode() + b"\n")
        if "exit" not in plan:
            while connection.recv(4096):
                pass
    except OSError:
        # The reader left; the app goes on.
        return


if __name__ == "__main__":
    main()
