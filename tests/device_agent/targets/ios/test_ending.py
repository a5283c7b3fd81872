"""Pieces of an end: the app's own last word on its memory, and what names its files."""

from pathlib import Path

from device_agent.targets.ios.ending import last_memory
from device_agent.targets.ios.evidence import LastMemory
from device_agent.targets.ios.model_files import ModelDigests
from device_agent.targets.ios.start import port_of


def sample(seq: int, footprint_bytes: int) -> str:
    return (
        f'{{"seq":{seq},"t_mono_ns":{seq},"type":"memory_sampled","trial":1,"method":"phys_footprint",'
        f'"footprint_bytes":{footprint_bytes},"limit_bytes":2000,"available_bytes":100}}\n'
    )


def test_the_last_word_on_memory_is_the_last_whole_sample(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text(sample(2, 900) + sample(3, 1900) + '{"seq":4,"type":"memory_sampled","t_mo')
    assert last_memory(events) == LastMemory(1900, 100, 2000)


def test_without_a_sample_or_a_file_there_is_no_last_word(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    assert last_memory(events) is None
    events.write_text('{"type":"memory_sampled"}\nnot json "memory_sampled"\n')
    assert last_memory(events) is None


def test_a_model_is_known_by_its_content_wherever_it_lies(tmp_path: Path) -> None:
    digests = ModelDigests()
    for place in ("a", "b"):
        folder = tmp_path / place / "model"
        (folder / "sub").mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "sub/weights").write_bytes(b"x" * 100)
    one, two = (digests.model(tmp_path / place / "model") for place in ("a", "b"))
    assert one.remote == two.remote
    assert [file.remote.rpartition("model/")[2] for file in one.files] == ["config.json", "sub/weights"]
    (tmp_path / "b/model/config.json").write_text("{ }")
    assert digests.model(tmp_path / "b/model").remote != one.remote


def test_ports_are_the_attempts_own_and_unprivileged() -> None:
    ports = {port_of(f"att_{number:026d}") for number in range(200)}
    assert len(ports) > 190
    assert all(20_000 <= port < 40_000 for port in ports)
