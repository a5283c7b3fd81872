"""A tiny model, a small form of the work, and a machine whose others are as busy as a test wants."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.bench import BenchRequest
from contract.rest import WorkloadRequest
from contract.workload import CompiledWorkload
from workloads import compile_request

SMALL = {
    "agents": 3,
    "prefix_tokens": 100,
    "task_tokens": 10,
    "result_tokens": 12,
    "calls": 2,
    "generated_tokens": 6,
}
MakeRequest = Callable[..., BenchRequest]


def small_work(**params: int) -> CompiledWorkload:
    """seed-5x2000 at a size that a test can wait for."""
    (compiled,) = compile_request(WorkloadRequest(name="seed-5x2000", params={**SMALL, **params}))
    return compiled


@pytest.fixture
def make_request_for(tiny_model: Path) -> MakeRequest:
    """A request for the tiny model that waits for nobody."""

    def make(**changes: Any) -> BenchRequest:
        return BenchRequest.model_validate(
            {
                "workload": small_work(),
                "model": str(tiny_model),
                "engine": {"threads": 1, "dtype": "float32", "tier": "aten"},
                "repeats": {"serial": 1, "serial_cached": 1, "paged": 1},
                "without_events_repeats": 1,
                "arriving_prefill_repeats": 1,
                "extra_rounds": 0,
                "quiet_wait_s": 0,
            }
            | changes
        )

    return make
