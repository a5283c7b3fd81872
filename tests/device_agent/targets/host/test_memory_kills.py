"""The system's counts of memory kills."""

from pathlib import Path

from device_agent.targets.host.memory_kills import counters_here, memory_kill_count


def test_counters_are_summed_and_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    events, machine = tmp_path / "memory.events", tmp_path / "vmstat"
    events.write_text("low 0\noom 5\noom_kill 2\noom_group_kill 9\n")
    machine.write_text("nr_free_pages 7\noom_kill 3\n")
    assert memory_kill_count((events, machine, tmp_path / "none")) == 5


def test_without_any_counter_there_is_no_count(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("low 0\n")
    assert memory_kill_count((tmp_path / "empty", tmp_path / "none")) is None


def test_this_machine_s_counters_do_not_fail() -> None:
    count = memory_kill_count(counters_here())
    assert count is None or count >= 0
