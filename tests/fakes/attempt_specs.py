"""Attempt specs of every shape that a runtime is asked for, short enough to read."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.jobs import ArmSpec, AttemptSpec, EngineOptions, TrialSpec
from contract.runtime_link import LEASE_FILE, SPEC_FILE, LeaseFile
from contract.workload import AgentPlan, Call, CompiledWorkload, Segment, SegmentPart, ToolWait

ATTEMPT_ID = "att_00000000000000000000000000"
SYSTEM = "You watch a farm of devices. Read what the tools say, then answer in one short line. "


def agent(index: int, calls: int = 3, output_tokens: int = 8, **plan: Any) -> tuple[AgentPlan, list[Segment]]:
    """An agent whose prompts begin with the segment `system`; a tool's result stands between its calls."""
    name = f"agent{index}"
    task = Segment(segment_id=f"{name}.task", text=f"Task {index}: look at device {index * 7}. ", tokens=24)
    segments, made = [task], []
    for number in range(calls):
        if number == 0:
            parts = [SegmentPart(segment_id="system"), SegmentPart(segment_id=task.segment_id)]
        else:
            result = Segment(
                segment_id=f"{name}.tool{number}", text=f"Result {number * 31 + index}: ok. ", tokens=20
            )
            segments.append(result)
            parts = [SegmentPart(segment_id=result.segment_id)]
        made.append(
            Call(
                parts=parts,
                max_output_tokens=output_tokens,
                ignore_end=True,
                tool_wait=ToolWait(tool="probe", wait_s=0.01) if number else None,
            )
        )
    return AgentPlan(agent=name, calls=made, **plan), segments


def shared_prefix(agents: int = 3, system_tokens: int = 100, **of_agent: Any) -> CompiledWorkload:
    """Agents that share a system prompt and differ in their tasks."""
    made = [agent(index, **of_agent) for index in range(agents)]
    system = Segment(segment_id="system", text=SYSTEM, tokens=system_tokens)
    return workload([plan for plan, _ in made], [system, *(s for _, segments in made for s in segments)])


def workload(agents: list[AgentPlan], segments: list[Segment], **more: Any) -> CompiledWorkload:
    """Compiled as the controller does, under a digest that stands for any."""
    return CompiledWorkload(
        name="shared-prefix",
        version=1,
        digest="sha256:" + "0" * 64,
        params={},
        segments=segments,
        agents=agents,
        **more,
    )


def attempt_spec(
    graph: CompiledWorkload, modes: Sequence[str] = ("serial", "paged"), pairs: int = 1, **engine: Any
) -> AttemptSpec:
    """Every mode once a pair, in order; one thread and float32 unless `engine` says otherwise."""
    options = EngineOptions(**{"dtype": "float32", "threads": 1, "block_tokens": 16} | engine)
    arms = [ArmSpec(arm=mode.replace("_", "-"), mode=mode, engine=options) for mode in modes]
    order = [(pair, arm) for pair in range(1, pairs + 1) for arm in arms]
    trials = [TrialSpec(trial=n, arm=arm.arm, pair=pair) for n, (pair, arm) in enumerate(order, start=1)]
    return AttemptSpec(
        attempt_id=ATTEMPT_ID,
        job_id="job_00000000000000000000000000",
        run_id="run_00000000000000000000000000",
        model="tiny",
        workload=graph,
        arms=arms,
        trials=trials,
    )


def attempt_folder(root: Path, spec: AttemptSpec, lease_s: float = 120.0) -> Path:
    """As a device agent prepares it: the folder is named after the attempt."""
    folder = root / spec.attempt_id
    folder.mkdir(parents=True)
    (folder / SPEC_FILE).write_text(spec.model_dump_json())
    write_lease(folder, lease_s)
    return folder


def write_lease(folder: Path, lease_s: float, directive: str = "continue") -> None:
    """Replaced at once, as renewals are."""
    lease = LeaseFile(deadline_mono_ns=time.monotonic_ns() + round(lease_s * 1e9), directive=directive)
    unfinished = folder / "lease.new"
    unfinished.write_text(lease.model_dump_json())
    unfinished.replace(folder / LEASE_FILE)
