"""Settings of the agent, and its small tools."""

import random
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from device_agent.floor.atomic_file import write_atomically
from device_agent.floor.clock import continuous_ns, monotonic_ns
from device_agent.floor.settings import AgentSettings
from rest.backoff import Backoff


def test_the_environment_sets_what_the_command_line_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNOFARM_CONTROLLER_URL", "https://farm.example/")
    monkeypatch.setenv("DYNOFARM_RUNTIME_COMMAND", '["a", "b"]')
    monkeypatch.setenv("DYNOFARM_DATABASE_URL", "somebody else's")
    settings = AgentSettings(home=Path("~/x"))
    assert settings.controller_url == "https://farm.example"
    assert settings.runtime_command == ("a", "b")
    assert settings.home == Path.home() / "x"
    assert settings.models_folder == Path.home() / "x/models"


@pytest.mark.parametrize("url", ["", "farm", "ftp://farm", "http://"])
def test_an_address_without_scheme_or_host_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="http://HOST:PORT"):
        AgentSettings(controller_url=url)


def test_the_token_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNOFARM_ENROLLMENT_TOKEN", "dyn_secret")
    assert "dyn_secret" not in repr(AgentSettings())


@given(st.integers(0, 2**32), st.floats(0.001, 5), st.floats(5, 100), st.integers(1, 200))
def test_waits_grow_to_the_cap_and_never_beyond(seed: int, first_s: float, cap_s: float, tries: int) -> None:
    backoff = Backoff(first_s, cap_s, random.Random(seed))
    waits = [backoff.next_s() for _ in range(tries)]
    for step, wait_s in enumerate(waits):
        whole = min(cap_s, first_s * 2**step)
        assert whole / 2 <= wait_s <= whole
    backoff.reset()
    assert backoff.next_s() <= first_s


def test_a_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_replacement_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(OSError, match="f"):
        write_atomically(tmp_path / "f", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_the_continuous_clock_runs_with_the_monotonic_one_while_awake() -> None:
    first = continuous_ns() - monotonic_ns()
    second = continuous_ns() - monotonic_ns()
    assert abs(second - first) < 1_000_000_000
