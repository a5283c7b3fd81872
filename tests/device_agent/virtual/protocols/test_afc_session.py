"""AFC on one folder: its free space and its files agree with a model that keeps bytes in a dictionary."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from device_agent.virtual.device.catalogue import model_of, parse_version
from device_agent.virtual.device.disk import Disk
from device_agent.virtual.device.record import new_record
from device_agent.virtual.device.triggers import Progress, Triggers
from device_agent.virtual.protocols.afc_session import AfcRefusal, AfcSession, AfcStatus

CAPACITY_BYTES = 1 << 20
NAMES = st.sampled_from(["/a", "/b", "/c"])
SIZES = st.integers(min_value=0, max_value=400_000)


class FilesAgainstADictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        record = new_record(1, model_of("iPhone17,1"), parse_version("18.5"), CAPACITY_BYTES, 1 << 30)
        self.disk = Disk(Path(self.folder.name), record)
        self.session = AfcSession(self.disk.media, self.disk, Triggers())
        self.files: dict[str, bytes] = {}

    def teardown(self) -> None:
        self.session.close()
        self.folder.cleanup()

    @property
    def free_bytes(self) -> int:
        return CAPACITY_BYTES - sum(map(len, self.files.values()))

    @rule(name=NAMES, size=SIZES)
    def write_anew(self, name: str, size: int) -> None:
        self.files[name] = b""
        self._write(3, name, 0, b"w" * size)

    @rule(name=NAMES, size=SIZES)
    def append(self, name: str, size: int) -> None:
        old = self.files.setdefault(name, b"")
        self._write(5, name, len(old), b"a" * size)

    @rule(name=NAMES, size=SIZES, share=st.floats(0, 1))
    def overwrite_from_within(self, name: str, size: int, share: float) -> None:
        old = self.files.setdefault(name, b"")
        self._write(2, name, int(len(old) * share), b"o" * size)

    def _write(self, mode: int, name: str, start: int, data: bytes) -> None:
        handle = self.session.open(mode, name).handle
        assert handle is not None
        self.session.seek(handle, 0, start)
        old = self.files[name]
        growth = max(0, start + len(data) - len(old))
        fitting = data[: len(data) - max(0, growth - self.free_bytes)]
        if len(fitting) < len(data):
            with pytest.raises(AfcRefusal, match=AfcStatus.NO_SPACE_LEFT.name):
                asyncio.run(self.session.write(handle, data))
        else:
            asyncio.run(self.session.write(handle, data))
        self.files[name] = old[:start] + fitting + old[start + len(fitting) :]
        self.session.close_file(handle)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        if name in self.files:
            self.session.remove(name)
            del self.files[name]
        else:
            with pytest.raises(FileNotFoundError):
                self.session.remove(name)

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        if old in self.files:
            self.session.rename(old, new)
            self.files[new] = self.files.pop(old)

    @invariant()
    def files_and_room_agree(self) -> None:
        for name, content in self.files.items():
            assert (self.disk.media / name[1:]).read_bytes() == content
        assert self.disk.free_bytes == self.free_bytes
        self.disk.measure()
        assert self.disk.free_bytes == self.free_bytes


TestFiles = FilesAgainstADictionary.TestCase
TestFiles.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


def test_an_action_runs_after_exactly_so_much_was_counted() -> None:
    async def scenario() -> list[str]:
        triggers, seen = Triggers(), []

        async def act() -> None:
            seen.append("acted")

        triggers.arm(Progress.PUSH_BYTES, 10, act)
        assert triggers.room(Progress.PUSH_BYTES) == 10
        assert triggers.room(Progress.EVENTS) is None
        await triggers.advance(Progress.PUSH_BYTES, 9)
        seen.append("nine")
        await triggers.advance(Progress.EVENTS, 100)
        await triggers.advance(Progress.PUSH_BYTES, 1)
        assert triggers.waiting == 0
        return seen

    assert asyncio.run(scenario()) == ["nine", "acted"]
