"""One thread, since other suites run beside this one; a tiny model; a machine with others on it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.fakes.machine_use import FakeMachine, FakeProcess


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    # Tests of the pool and the scheduler need no torch, and do not wait for it.
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.fakes.tiny_model import save_tiny_model

    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """The system's answers, in the place of psutil's."""
    fake = FakeMachine(others_percent=0.0)
    monkeypatch.setattr(psutil, "cpu_times", fake.cpu_times)
    monkeypatch.setattr(psutil, "Process", FakeProcess)
    return fake
