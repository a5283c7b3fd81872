import os
from pathlib import Path

import pytest

from runtime.host.machine import this_machine, usable_cores


def test_the_machine_names_itself() -> None:
    machine = this_machine()
    assert machine.cpu
    assert machine.device_model
    assert machine.os_name
    assert 1 <= machine.cores <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("100000 100000", 1), ("1000 100000", 1), ("max 100000", None), ("nonsense", None), ("5 0", None)],
)
def test_a_quota_bounds_the_cores(tmp_path: Path, quota: str, cores: int | None) -> None:
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert usable_cores(tmp_path / "cpu.max") == (cores or usable_cores(tmp_path / "nothing"))
