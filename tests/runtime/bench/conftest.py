"""A tiny model, a small form of the work, and a machine whose others are as busy as a test wants."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
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


class FakeMachine:
    """What the system says of processor time: a second passes with each look, others use a share of it."""

    def __init__(self, others_percent: float) -> None:
        self.others_percent = others_percent
        self._user_s = self._idle_s = 0.0

    def cpu_times(self) -> SimpleNamespace:
        self._user_s += self.others_percent / 100.0
        self._idle_s += 1.0 - self.others_percent / 100.0
        return SimpleNamespace(user=self._user_s, idle=self._idle_s)


class FakeProcess:
    """This process, which uses no processor time and has no children."""

    pid = 1

    def children(self, *, recursive: bool) -> list[object]:
        return []

    def cpu_times(self) -> SimpleNamespace:
        return SimpleNamespace(user=0.0, system=0.0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """The system's answers, in the place of psutil's."""
    fake = FakeMachine(others_percent=0.0)
    monkeypatch.setattr(psutil, "cpu_times", fake.cpu_times)
    monkeypatch.setattr(psutil, "Process", FakeProcess)
    return fake
