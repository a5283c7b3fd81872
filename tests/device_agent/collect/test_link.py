"""Reading a runtime over its socket and from its file: what one does not bring, the other does."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from contract.events.envelope import Stream
from contract.runtime_link import Heartbeat
from device_agent.collect.intake import Intake
from device_agent.collect.link import RuntimeLink
from device_agent.collect.spool import Spool
from tests.fakes.lines import ATTEMPT_ID, line

C, S, A = Stream.CONTROL, Stream.SAMPLES, Stream.DEVICE_AGENT
HEARTBEAT = Heartbeat().model_dump_json().encode()
Speak = Callable[[dict[str, int], asyncio.StreamWriter], Awaitable[None]]


class Place:
    """A spool, an intake and a link over a socket and a file in one folder."""

    def __init__(self, folder: Path) -> None:
        self.events = folder / "events.jsonl"
        self.socket = folder / "s"
        self.spool = Spool(folder / "spool.sqlite", 1 << 30)
        self.intake = Intake(self.spool, ATTEMPT_ID)
        self.link = RuntimeLink(self.socket, self.events, self.spool, self.intake)

    def write(self, data: bytes) -> None:
        with self.events.open("ab") as file:
            file.write(data)

    async def serve(self, speak: Speak) -> asyncio.Server:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            after = json.loads(await reader.readline())["after"]
            try:
                await speak(after, writer)
            finally:
                writer.close()

        return await asyncio.start_unix_server(answer, self.socket)

    async def until(self, stream: Stream, seq: int) -> None:
        async with asyncio.timeout(20):
            while self.spool.last_seqs().get(stream, 0) < seq:
                await asyncio.sleep(0.01)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(place: Place) -> None:
    async def run() -> None:
        place.write(line(C, 1) + b"\n" + line(C, 2)[:20])
        assert await place.link.finish()
        assert place.spool.last_seqs() == {C: 1}
        place.write(line(C, 2)[20:] + b"\n" + line(C, 3) + b"\n")
        assert await place.link.finish()

    asyncio.run(run())
    assert place.spool.last_seqs() == {C: 3}
    assert place.spool.file_offset() == place.events.stat().st_size


def test_a_later_life_reads_on_where_the_spool_is(place: Place) -> None:
    place.write(b"".join(line(C, seq) + b"\n" for seq in range(1, 5)))
    asyncio.run(place.link.finish())
    place.write(line(C, 5) + b"\n")
    later = RuntimeLink(place.socket, place.events, place.spool, Intake(place.spool, ATTEMPT_ID))
    asyncio.run(later.finish())
    assert place.spool.last_seqs() == {C: 5}


def test_the_socket_is_asked_only_for_what_is_missing(place: Place) -> None:
    asked: list[dict[str, int]] = []

    async def speak(after: dict[str, int], writer: asyncio.StreamWriter) -> None:
        asked.append(after)
        start = after["control"] + 1
        writer.write(b"".join(line(C, seq) + b"\n" for seq in range(start, start + 3)) + HEARTBEAT + b"\n")
        await writer.drain()
        await asyncio.sleep(0.05)

    async def run() -> None:
        async with await place.serve(speak):
            place.link.start()
            await place.until(C, 6)
            await place.link.stop()

    asyncio.run(run())
    assert [after["control"] for after in asked[:2]] == [0, 3]
    assert place.spool.events(A, "transport_lost", "event_refused") == []


@pytest.mark.parametrize("wrong", [b"no event\n", line(C, 9) + b"\n", b"x" * 300_000 + b"\n"])
def test_a_socket_that_errs_is_left_for_the_file_and_that_is_told(place: Place, wrong: bytes) -> None:
    async def speak(after: dict[str, int], writer: asyncio.StreamWriter) -> None:
        writer.write(line(C, 1) + b"\n" + wrong if not after["control"] else HEARTBEAT + b"\n")
        await writer.drain()
        await asyncio.sleep(30)

    async def run() -> None:
        place.write(b"".join(line(C, seq) + b"\n" for seq in range(1, 4)))
        async with await place.serve(speak):
            place.link.start()
            await place.until(C, 3)
            async with asyncio.timeout(20):
                while not place.spool.events(A, "transport_lost"):
                    await asyncio.sleep(0.01)
            await place.link.stop()

    asyncio.run(run())
    assert place.intake.progress.invalid == ""


def test_a_socket_that_falls_silent_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device_agent.collect.link._SILENCE_DEADLINE_S", 0.1)

    async def speak(after: dict[str, int], writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async def run() -> None:
        place.write(line(C, 1) + b"\n")
        async with await place.serve(speak):
            place.link.start()
            await place.until(C, 1)
            await place.link.stop()

    asyncio.run(run())
    assert place.spool.last_seqs()[C] == 1


def test_the_last_words_on_the_socket_are_heard_before_the_file(place: Place) -> None:
    """A runtime that is killed may have sent more than it had written."""

    async def speak(after: dict[str, int], writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(line(C, seq) + b"\n" for seq in range(after["control"] + 1, 4)))
        await writer.drain()

    async def run() -> None:
        place.write(line(C, 1) + b"\n")
        async with await place.serve(speak):
            place.link.start()
            await asyncio.sleep(0.05)
            assert await place.link.finish()

    asyncio.run(run())
    assert place.spool.last_seqs() == {C: 3}


def test_a_full_disk_is_said_and_nothing_is_lost(place: Place) -> None:
    place.write(b"".join(line(S, seq, "z" * 200) + b"\n" for seq in range(1, 400)))
    place.spool.limit_pages(1)
    with capture_logs() as logged:
        assert asyncio.run(place.link.finish()) is False
        assert asyncio.run(place.link.finish()) is False
    assert [entry["event"] for entry in logged] == ["spool_full"], "the log may be on the same disk"
    assert place.link.spool_full
    place.spool.limit_pages(1_000_000)
    assert asyncio.run(place.link.finish()) is True
    assert not place.link.spool_full
    assert place.spool.last_seqs() == {S: 399}


def test_the_socket_of_a_killed_runtime_is_removed(place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place.socket))
    # As after SIGKILL: nobody listens, and the address is still there.
    assert place.socket.is_socket()
    assert asyncio.run(place.link.finish())
    assert not place.socket.exists()


def test_without_a_file_there_is_nothing_to_collect(place: Place) -> None:
    assert asyncio.run(place.link.finish()) is True
    assert place.spool.last_seqs() == {}
