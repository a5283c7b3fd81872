"""A small honest runtime: it speaks contract/runtime_link and does what workload.params["fake"] says.

Keys of "fake": tokens (how many are emitted), token_s (pause before each), then (how it ends):
    complete | fail | cancelled_by_itself | signal | exit | stall | hang, with `code` for signal and exit
and flags: torn (end with half a line), invalid_at (an unparsable line before token n), skip_at (a number is
left out before token n), held (before its end it waits until the test releases it), ignore_term, no_socket,
ready_s (pause before it is ready), samples, logs (lines of these streams with each token).
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
from pathlib import Path
from typing import Any

WALL = "2026-11-29T00:00:00Z"


class Events:
    """Numbers, writes and offers events; the socket's readers get what they lack."""

    def __init__(self, attempt_dir: Path, attempt_id: str) -> None:
        self.file = (attempt_dir / "events.jsonl").open("ab")
        if mirror := os.environ.get("FAKE_RUNTIME_MIRROR"):
            # The same file under a second name, for tests: the agent removes the first.
            os.link(attempt_dir / "events.jsonl", Path(mirror) / f"{attempt_id}.jsonl")
        self.attempt_id = attempt_id
        self.changed = threading.Condition()
        self.lines: list[tuple[str, int, bytes]] = []
        self.seqs: dict[str, int] = {}
        self.ended = False

    def emit(self, into: str, kind: str, **fields: Any) -> None:
        if into not in self.seqs:
            self.seqs[into] = 0
            producer = {"name": "fake", "version": "1"}
            opening = {"stream": into, "contract_version": "1.0", "attempt_id": self.attempt_id}
            self.emit(into, "stream_opened", **opening, producer=producer, t_wall=WALL)
        self.seqs[into] += 1
        event = {"seq": self.seqs[into], "t_mono_ns": time.monotonic_ns(), "type": kind, **fields}
        self.write(into, self.seqs[into], json.dumps(event).encode() + b"\n")

    def write(self, stream: str, seq: int, line: bytes) -> None:
        self.file.write(line)
        self.file.flush()
        with self.changed:
            self.lines.append((stream, seq, line))
            self.changed.notify_all()

    def close(self) -> None:
        os.fsync(self.file.fileno())
        with self.changed:
            self.ended = True
            self.changed.notify_all()


def serve_socket(path: str, events: Events) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(8)

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=serve_reader, args=(connection, events), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def serve_reader(connection: socket.socket, events: Events) -> None:
    try:
        after = json.loads(connection.makefile("rb").readline())["after"]
        sent = 0
        while True:
            with events.changed:
                if sent == len(events.lines) and not events.ended:
                    events.changed.wait(1.0)
                lines, ended = events.lines[sent:], events.ended
            sent += len(lines)
            wanted = [line for stream, seq, line in lines if seq > after.get(stream, 0)]
            connection.sendall(b"".join(wanted) or b'{"type":"heartbeat"}\n')
            if ended and not lines:
                break
    except (OSError, ValueError, KeyError):
        pass
    finally:
        connection.close()


SEEN: dict[int, int] = {}


def lease_says(attempt_dir: Path) -> str:
    lease = json.loads((attempt_dir / "lease.json").read_bytes())
    deadline_ns = lease["deadline_mono_ns"]
    if lease.get("ttl_s") is not None:
        first_ns = SEEN.setdefault(lease["renewal"], time.monotonic_ns())
        deadline_ns = first_ns + int(lease["ttl_s"] * 1e9)
    if time.monotonic_ns() >= deadline_ns:
        return "expired"
    return str(lease["directive"])


def end(events: Events, attempt_dir: Path, script: dict[str, Any]) -> int:
    then = script.get("then", "complete")
    if then == "signal":
        events.close()
        os.kill(os.getpid(), script.get("code", signal.SIGSEGV))
    if then == "stall":
        while lease_says(attempt_dir) == "continue":
            time.sleep(0.05)
        return 4
    while then == "hang":
        time.sleep(1.0)
    if then == "exit":
        return int(script.get("code", 0))
    if then == "fail":
        events.emit(
            "control",
            "runtime_finished",
            status="failed",
            reason="budget_too_small",
            detail="too many agents",
        )
        return 1
    if then == "cancelled_by_itself":
        events.emit("control", "runtime_finished", status="cancelled")
        return 3
    events.emit("control", "trial_finished", trial=1, status="completed")
    events.emit("control", "runtime_finished", status="completed")
    return 0


def emit_token(events: Events, script: dict[str, Any], index: int) -> None:
    if script.get("invalid_at") == index:
        events.write("control", 0, b'{"type": "no such event"}\n')
    if script.get("skip_at") == index:
        events.seqs["control"] += 1
    events.emit("control", "token_emitted", trial=1, agent="a", call=0, index=index, token_id=index % 1000)
    for _ in range(script.get("samples", 0)):
        events.emit("samples", "memory_sampled", trial=1, footprint_bytes=1000 + index, method="fake")
    for _ in range(script.get("logs", 0)):
        events.emit("log", "log_line", level="debug", message="x" * 200)


def run(attempt_dir: Path, script: dict[str, Any], events: Events) -> int:
    time.sleep(script.get("ready_s", 0.0))
    events.emit("control", "runtime_stage", stage="ready", duration_ns=1)
    events.emit("control", "trial_started", trial=1, arm="paged", pair=1, warmup=False)
    for index in range(script.get("tokens", 5)):
        said = lease_says(attempt_dir)
        if said != "continue":
            events.emit("control", "runtime_finished", status="cancelled", detail=f"lease says {said}")
            return 4 if said == "expired" else 3
        time.sleep(script.get("token_s", 0.0))
        emit_token(events, script, index)
    while script.get("held") and not (attempt_dir / "release").exists():
        time.sleep(0.02)
    return end(events, attempt_dir, script)


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--attempt-dir", "--model-path", "--socket"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    attempt_dir = Path(given.attempt_dir)
    spec = json.loads((attempt_dir / "spec.json").read_bytes())
    script = spec["workload"]["params"].get("fake", {})
    with (attempt_dir / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    if script.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stderr.write("fake runtime starts\n")
    events = Events(attempt_dir, spec["attempt_id"])
    if not script.get("no_socket"):
        serve_socket(given.socket, events)
    code = run(attempt_dir, script, events)
    if script.get("torn"):
        events.file.write(b'{"seq": 99, "t_mono')
        events.file.flush()
    events.close()
    # Readers get the rest before the process ends, as far as they are quick.
    time.sleep(0.05)
    return code


if __name__ == "__main__":
    sys.exit(main())
