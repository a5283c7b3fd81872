"""The work as token ids in a file: what the runtime draws from the seed, for peers that know no workload."""

import json
from pathlib import Path
from typing import Any

from contract.workload import CompiledWorkload, OutputPart
from runtime.bench.seeded_ids import seeded_prompts


def work_document(workload: CompiledWorkload, seed: int, vocab_size: int) -> dict[str, Any]:
    """Every call's own tokens, in order; ValueError for a workload whose calls use each other's outputs."""
    book = seeded_prompts(workload.segments, seed, vocab_size)
    agents = []
    for plan in workload.agents:
        calls = []
        for call in plan.calls:
            if any(isinstance(part, OutputPart) for part in call.parts) or call.after:
                raise ValueError(f"agent {plan.agent}: peers run agents that depend on nobody")
            tokens = [
                token
                for part in call.parts
                if not isinstance(part, OutputPart)
                for token in book.segment(part.segment_id)
            ]
            calls.append({"tokens": tokens, "output_tokens": call.max_output_tokens})
        agents.append({"agent": plan.agent, "calls": calls})
    return {"name": workload.name, "shared": _shared(agents), "agents": agents}


def write_work(workload: CompiledWorkload, seed: int, vocab_size: int, path: Path) -> Path:
    """The document as a file; the path."""
    path.write_text(json.dumps(work_document(workload, seed, vocab_size)))
    return path


def _shared(agents: list[dict[str, Any]]) -> list[int]:
    """What all first calls begin with."""
    shared: list[int] = []
    for column in zip(*(agent["calls"][0]["tokens"] for agent in agents), strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return shared
