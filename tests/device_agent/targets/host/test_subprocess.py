"""Runtimes as processes: they survive their starter, are found again, and nothing else is ever signalled."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.errors import LaunchError
from device_agent.targets.host.subprocess import adopt, launch
from device_agent.targets.port import ExitStatus, RuntimeProcess

SLEEPER = (sys.executable, "-c", "import time; time.sleep(60)")


LAUNCHED: list[RuntimeProcess] = []


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[AttemptFolder]:
    """Whatever a test launches in it is gone at its end."""
    yield AttemptFolder(tmp_path)
    while LAUNCHED:
        runtime = LAUNCHED.pop()
        runtime.kill()
        wait_for(runtime)


def begin(folder: AttemptFolder, *command: str) -> RuntimeProcess:
    LAUNCHED.append(launch(folder, command, Path("model"), folder.path / "s"))
    return LAUNCHED[-1]


def wait_for(runtime: RuntimeProcess) -> ExitStatus:
    end_s = time.monotonic() + 20
    while (status := runtime.exit_status()) is None:
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return status


def start(folder: AttemptFolder, *command: str) -> ExitStatus:
    """Run to the end."""
    return wait_for(begin(folder, *command))


def test_a_runtime_is_told_everything_and_has_a_session_of_its_own(folder: AttemptFolder) -> None:
    said = "import os, sys; print(sys.argv[1:], os.getsid(0) == os.getpid(), os.getcwd())"
    assert start(folder, sys.executable, "-c", said) == ExitStatus(0, None)
    log = folder.log_path.read_text()
    assert (
        f"['--attempt-dir', '{folder.path}', '--model-path', 'model', '--socket', '{folder.path}/s']" in log
    )
    assert f"True {folder.path}" in log


def test_a_runtime_does_not_inherit_secrets(folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNOFARM_ENROLLMENT_TOKEN", "dyn_hidden")
    start(folder, sys.executable, "-c", "import os; print(sorted(os.environ), os.environ)")
    assert "dyn_hidden" not in folder.log_path.read_text()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise SystemExit(7)", ExitStatus(7, None)),
        ("import os; os.kill(os.getpid(), 11)", ExitStatus(None, 11)),
        ("import os; os.abort()", ExitStatus(None, signal.SIGABRT)),
    ],
)
def test_an_exit_is_a_code_or_a_signal(folder: AttemptFolder, code: str, status: ExitStatus) -> None:
    assert start(folder, sys.executable, "-c", code) == status


def test_a_command_that_is_not_there_is_a_launch_error(folder: AttemptFolder) -> None:
    with pytest.raises(LaunchError, match="no-such-program"):
        launch(folder, ("no-such-program",), Path("model"), folder.path / "s")


def test_a_runtime_that_cannot_be_recorded_does_not_live(folder: AttemptFolder) -> None:
    (folder.path / "process.json").mkdir()
    before = psutil.Process().children()
    with pytest.raises(LaunchError, match="record"):
        launch(folder, SLEEPER, Path("model"), folder.path / "s")
    assert psutil.Process().children() == before


@pytest.mark.parametrize("recorded", [True, False], ids=["by its record", "by its command line"])
def test_a_living_runtime_is_adopted_and_can_be_ended(folder: AttemptFolder, recorded: bool) -> None:
    child = begin(folder, *SLEEPER)
    if not recorded:
        (folder.path / "process.json").unlink()
    adopted = adopt(folder)
    assert adopted is not None
    assert (adopted.pid, adopted.exit_status()) == (child.pid, None)
    adopted.terminate()
    assert wait_for(child) == ExitStatus(None, signal.SIGTERM)
    assert adopted.exit_status() == ExitStatus(None, None)
    assert adopt(folder) is None


def test_a_pid_used_again_is_another_process(folder: AttemptFolder) -> None:
    begin(folder, *SLEEPER)
    record = folder.process()
    assert record is not None
    folder.write_process(record.model_copy(update={"started_s": record.started_s - 30}))
    assert adopt(folder) is None


def test_a_process_of_another_attempt_is_not_adopted(folder: AttemptFolder, tmp_path: Path) -> None:
    begin(folder, *SLEEPER)
    record = folder.process()
    assert record is not None
    other = AttemptFolder(tmp_path / "other")
    other.path.mkdir()
    other.write_process(record)
    assert adopt(other) is None


def test_nothing_started_means_nothing_adopted(folder: AttemptFolder) -> None:
    assert adopt(folder) is None


def test_ending_a_runtime_ends_its_children_too(folder: AttemptFolder) -> None:
    code = (
        "import subprocess, time; subprocess.Popen(['sleep', '60']); print('up', flush=True); time.sleep(60)"
    )
    runtime = begin(folder, sys.executable, "-c", code)
    end_s = time.monotonic() + 20
    while "up" not in folder.log_path.read_text():
        assert time.monotonic() < end_s
        time.sleep(0.02)
    (grandchild,) = psutil.Process(runtime.pid).children()
    runtime.kill()
    psutil.wait_procs([grandchild], timeout=10)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


def test_an_ended_runtime_is_never_signalled(folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = begin(folder, sys.executable, "-c", "")
    wait_for(runtime)
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: sent.append(pid))
    runtime.terminate()
    runtime.kill()
    assert sent == []


def test_the_log_keeps_what_the_runtime_said_before_it_died(folder: AttemptFolder) -> None:
    start(folder, sys.executable, "-c", "import sys; sys.stderr.write('last words'); raise SystemExit(1)")
    assert "last words" in folder.log_path.read_text()
