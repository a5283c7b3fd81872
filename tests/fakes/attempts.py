"""Specs and leases as a controller would write them, small."""

from typing import Any

from ulid import ULID

from contract.jobs import ArmSpec, AttemptSpec, Limits, TrialSpec
from contract.workload import AgentPlan, Call, CompiledWorkload, Segment, SegmentPart


def attempt_spec(fake: dict[str, Any] | None = None, **changes: Any) -> AttemptSpec:
    """One arm, one trial; `fake` tells tests/fakes/runtime.py what to do."""
    workload = CompiledWorkload(
        name="tiny",
        version=1,
        digest="sha256:" + "0" * 64,
        params={"fake": fake or {}},
        segments=[Segment(segment_id="s", text="hello")],
        agents=[AgentPlan(agent="a", calls=[Call(parts=[SegmentPart(segment_id="s")], max_output_tokens=4)])],
    )
    fields: dict[str, Any] = {
        "attempt_id": f"att_{ULID()}",
        "job_id": f"job_{ULID()}",
        "run_id": f"run_{ULID()}",
        "model": "tiny-model",
        "workload": workload,
        "arms": [ArmSpec(arm="paged", mode="paged")],
        "trials": [TrialSpec(trial=1, arm="paged", pair=1)],
        "limits": Limits(prepare_s=20, run_s=60, upload_s=20, stall_s=20),
    }
    return AttemptSpec(**{**fields, **changes})
