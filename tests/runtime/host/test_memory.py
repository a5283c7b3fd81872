import sys
import time
from pathlib import Path

import pytest

from contract.events import MemorySampled, Producer, parse_event
from contract.ios_app import ENV_MEMORY_LIMIT
from runtime.host.memory import give_back_memory, memory_limit_bytes, physical_memory_bytes, read_footprint
from runtime.measured.emit import EventEmitter
from runtime.measured.footprint import FootprintSampler
from tests.fakes.attempt_specs import ATTEMPT_ID

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_touched_memory_is_charged_and_comes_back_when_freed() -> None:
    before = read_footprint()
    block = bytearray(64 << 20)
    held = read_footprint()
    del block
    give_back_memory()
    after = read_footprint()
    assert before.method == "linux_anonymous"
    assert held.footprint_bytes - before.footprint_bytes > 60 << 20
    assert held.footprint_bytes - after.footprint_bytes > 60 << 20
    assert held.resident_bytes is not None
    assert held.resident_bytes >= held.footprint_bytes


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_smallest_limit_on_the_way_to_the_root_counts(tmp_path: Path) -> None:
    write(tmp_path / "cgroup", "0::/outer/inner\n")
    write(tmp_path / "fs/outer/inner/memory.max", "max\n")
    write(tmp_path / "fs/outer/memory.max", "3000000\n")
    write(tmp_path / "fs/memory.max", "5000000\n")
    assert memory_limit_bytes(tmp_path / "cgroup", tmp_path / "fs") == 3_000_000


def test_the_first_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    write(tmp_path / "cgroup", "4:cpu,cpuacct:/x\n3:memory:/outer\n")
    write(tmp_path / "fs/memory/outer/memory.limit_in_bytes", "4000000\n")
    write(tmp_path / "fs/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_limit_bytes(tmp_path / "cgroup", tmp_path / "fs") == 4_000_000


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path / "nothing", tmp_path) is None


def test_an_emulated_device_tells_its_own_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "cgroup", "0::/outer\n")
    write(tmp_path / "fs/outer/memory.max", "3000000\n")
    monkeypatch.setenv(ENV_MEMORY_LIMIT, "2000000")
    assert memory_limit_bytes(tmp_path / "nothing", tmp_path) == 2_000_000
    assert memory_limit_bytes(tmp_path / "cgroup", tmp_path / "fs") == 2_000_000
    monkeypatch.setenv(ENV_MEMORY_LIMIT, "4000000")
    assert memory_limit_bytes(tmp_path / "cgroup", tmp_path / "fs") == 3_000_000


def test_the_machine_has_memory() -> None:
    assert (physical_memory_bytes() or 0) > 1 << 28


def test_samples_belong_to_the_trial_that_runs(tmp_path: Path) -> None:
    emitter = EventEmitter(tmp_path / "e", ATTEMPT_ID, Producer(name="t", version="1"))
    sampler = FootprintSampler(emitter, None, interval_s=0.005)
    sampler.attribute_to(1, limit_bytes=1 << 40)
    time.sleep(0.1)
    sampler.attribute_to(None, None)
    time.sleep(0.05)
    sampler.close()
    emitter.close()
    events = [parse_event(line) for line in (tmp_path / "e").read_bytes().splitlines()]
    samples = [event for event in events if isinstance(event, MemorySampled)]
    in_trial = [sample for sample in samples if sample.trial == 1]
    assert len(in_trial) > 2
    for sample in in_trial:
        assert sample.limit_bytes == 1 << 40
        assert sample.available_bytes == (1 << 40) - sample.footprint_bytes
    assert samples[-1].trial is None
    assert samples[-1].limit_bytes is None
