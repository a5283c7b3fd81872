"""Twenty devices on one host: what agent and workers cost while nothing runs."""

import json
import os
import time
from pathlib import Path

import psutil
import pytest

from tests.fakes.device_rig import device_rig

pytestmark = [
    pytest.mark.phone,
    pytest.mark.skipif(
        os.environ.get("DEVICE_MATRIX") != "whole",
        reason="takes minutes; `make matrix` runs it",
    ),
]

MIB = 1 << 20
WATCHED_S = 60.0


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def test_twenty_devices_are_cheap(tmp_path: Path, record_property) -> None:
    versions = ["16.7", "17.6", "18.5", "26.1"] * 5
    with device_rig(tmp_path, versions, preflight_s=30, preflight_retry_s=3, start_policy="{}") as rig:
        # As a real controller asks: a long poll for each device.
        rig.controller.claim_wait_s, rig.controller.hello_interval_s = 20.0, 30.0
        agent = psutil.Process(rig.agent.running.pid)
        workers = [psutil.Process(pid) for pid in rig.worker_pids()]
        assert len(workers) == 20
        time.sleep(5.0)
        before = cpu_s(agent), sum(map(cpu_s, workers))
        time.sleep(WATCHED_S)
        figures = {
            "agent_cpu_percent": 100 * (cpu_s(agent) - before[0]) / WATCHED_S,
            "workers_cpu_percent": 100 * (sum(map(cpu_s, workers)) - before[1]) / WATCHED_S,
            "agent_resident_mib": agent.memory_info().rss / MIB,
            "worker_private_mib": max(process.memory_full_info().uss for process in workers) / MIB,
            "agent_open_files": agent.num_fds(),
            "worker_start_cpu_s": before[1] / 20,
        }
        record_property("figures", json.dumps(figures))
        # Percent of one core, all twenty together; a preflight of each falls into the time twice.
        assert figures["agent_cpu_percent"] < 25, figures
        assert figures["workers_cpu_percent"] < 40, figures
        assert figures["agent_resident_mib"] < 200, figures
        assert figures["worker_private_mib"] < 120, figures
        assert figures["agent_open_files"] < 300, figures
