"""What the agent measures on its own machine."""

import subprocess
import sys
import time
from pathlib import Path

import psutil

from device_agent.probes.host import OthersCpu, host_health


def test_health_counts_what_is_held(tmp_path: Path) -> None:
    before = host_health(tmp_path, 7)
    with (tmp_path / "a").open("w"):
        after = host_health(tmp_path, 7)
    assert after.open_files == before.open_files + 1
    assert before.spool_backlog_events == 7
    assert before.disk_free_bytes > 0
    assert before.resident_bytes > 0


def test_the_first_reading_knows_nothing_and_later_ones_are_percent() -> None:
    cpu = OthersCpu()
    assert cpu.percent(None) is None
    time.sleep(0.05)
    later = cpu.percent(None)
    assert later is None or 0 <= later <= 100


def test_a_runtime_that_ended_meanwhile_makes_the_reading_unknown_not_large() -> None:
    cpu = OthersCpu()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        end_s = time.monotonic() + 20
        while psutil.Process(busy.pid).cpu_times().user < 0.05:
            assert time.monotonic() < end_s
            time.sleep(0.02)
        cpu.percent(busy.pid)
        busy.kill()
        busy.wait()
    assert cpu.percent(busy.pid) is None
