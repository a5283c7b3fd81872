"""Lines of a runtime, as bytes and as arrivals."""

import json
from typing import Any

from contract.events import event_line, parse_event
from contract.events.envelope import Stream
from device_agent.collect.spool import Arrived

ATTEMPT_ID = "att_01ARZ3NDEKTSV4RRFFQ69G5FAV"


def opened(stream: Stream, **changes: Any) -> bytes:
    """The first line of a stream."""
    event = {
        "seq": 1,
        "t_mono_ns": 0,
        "type": "stream_opened",
        "stream": stream,
        "contract_version": "1.0",
        "attempt_id": ATTEMPT_ID,
        "producer": {"name": "test", "version": "1"},
        "t_wall": "2026-11-29T00:00:00Z",
        **changes,
    }
    return event_line(parse_event(json.dumps(event)))


def line(stream: Stream, seq: int, text: str = "x") -> bytes:
    """Line seq of a stream: its opening, or an event of that stream."""
    if seq == 1:
        return opened(stream)
    fields: dict[Stream, dict[str, Any]] = {
        Stream.CONTROL: {
            "type": "token_emitted",
            "trial": 1,
            "agent": "a",
            "call": 0,
            "index": seq,
            "token_id": 1,
        },
        Stream.SAMPLES: {"type": "memory_sampled", "trial": 1, "footprint_bytes": seq, "method": text},
        Stream.LOG: {"type": "log_line", "level": "info", "message": text},
    }
    return event_line(parse_event(json.dumps({"seq": seq, "t_mono_ns": seq, **fields[stream]})))


def arrived(stream: Stream, *seqs: int, text: str = "x") -> list[Arrived]:
    """Parsed lines of a stream."""
    lines = [line(stream, seq, text) for seq in seqs]
    return [Arrived(seq, each, parse_event(each)) for seq, each in zip(seqs, lines, strict=True)]
