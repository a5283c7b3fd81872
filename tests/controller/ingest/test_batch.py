"""What an uploaded batch may be: sizes first, then every line against the contract."""

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.agent_api import MAX_BATCH_BYTES
from contract.events import Stream
from controller.errors import BadRequestError, FarmError, PayloadTooLargeError
from controller.ingest.batch import Batch, read_batch
from tests.controller.farm import control_lines, fixed_id, opening

ATTEMPT = fixed_id("att", 1)
GOOD = control_lines(ATTEMPT, 3)


def body(lines: list[bytes], **header: Any) -> bytes:
    """Header and lines as one text."""
    values = {
        "stream": "control",
        "first_seq": 1,
        "count": len(lines),
        "fence": 1,
        "sent_at": "2026-11-29T12:00:00Z",
        **header,
    }
    return b"\n".join([json.dumps(values).encode(), *lines]) + b"\n"


def read(lines: list[bytes], **header: Any) -> Batch:
    return read_batch(gzip.compress(body(lines, **header)), "gzip", ATTEMPT)


def refused(lines: list[bytes], **header: Any) -> BadRequestError:
    with pytest.raises(BadRequestError) as error:
        read(lines, **header)
    return error.value


def changed(line: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(line), **fields}).encode()


def test_a_good_batch_keeps_its_lines_byte_for_byte() -> None:
    batch = read(GOOD)
    assert batch.lines == tuple(GOOD)
    assert (batch.header.stream, batch.header.first_seq, batch.header.count) == (Stream.CONTROL, 1, 3)


def test_a_body_may_come_uncompressed_and_without_a_last_newline() -> None:
    assert read_batch(body(GOOD).rstrip(b"\n"), "", ATTEMPT).lines == tuple(GOOD)


def test_a_bad_event_is_named_by_line_and_field() -> None:
    error = refused([GOOD[0], changed(GOOD[1], duration_ns="long"), GOOD[2]])
    assert error.pointer == "/3/duration_ns"
    assert "line 3" in str(error)


def test_an_unknown_field_is_refused() -> None:
    assert refused([changed(GOOD[0], surprise=1)]).pointer == "/2/surprise"


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"null", b"\xff", b'{"type":"nonsense","seq":1}'])
def test_what_is_no_event_is_refused_with_its_line(line: bytes) -> None:
    assert "line 2" in str(refused([line]))


def test_numbers_must_follow_each_other() -> None:
    assert refused([GOOD[0], GOOD[2]]).pointer == "/3/seq"
    assert refused([GOOD[1]], first_seq=1).pointer == "/2/seq"


def test_an_event_of_another_stream_is_refused() -> None:
    assert refused([opening(ATTEMPT, Stream.SAMPLES), GOOD[1]], stream="samples").pointer == "/3/type"


def test_a_stream_opens_with_its_opening_event_and_has_no_second_one() -> None:
    assert refused([changed(GOOD[1], seq=1)]).pointer == "/2/type"
    assert refused([GOOD[0], changed(GOOD[0], seq=2)]).pointer == "/3/type"


def test_the_opening_must_be_of_this_stream_attempt_and_version() -> None:
    assert refused([opening(ATTEMPT, Stream.LOG)]).pointer == "/2/stream"
    assert refused([opening(fixed_id("att", 2))]).pointer == "/2/attempt_id"
    unknown = refused([changed(GOOD[0], contract_version="99.0")])
    assert unknown.pointer == "/2/contract_version"
    assert "install the same dynofarm version" in str(unknown)


def test_the_header_is_checked_first() -> None:
    assert refused(GOOD, fence=0).pointer == "/1/fence"
    assert refused(GOOD, stream="nonsense").pointer == "/1/stream"
    assert refused(GOOD, count=2).pointer == "/1/count"
    assert refused(GOOD, extra=1).pointer == "/1/extra"


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip.compress(b"0" * (30 << 20))
    assert len(bomb) < MAX_BATCH_BYTES
    with pytest.raises(PayloadTooLargeError):
        read_batch(bomb, "gzip", ATTEMPT)


def test_a_body_over_the_limit_is_refused_unread() -> None:
    with pytest.raises(PayloadTooLargeError):
        read_batch(b"x" * (MAX_BATCH_BYTES + 1), "", ATTEMPT)


def test_exactly_the_limit_is_allowed() -> None:
    padding = MAX_BATCH_BYTES - len(body([]))
    text = body([b"x" * padding])
    assert len(text) <= MAX_BATCH_BYTES + 1
    with pytest.raises(BadRequestError, match="bytes"):
        read_batch(gzip.compress(text[:MAX_BATCH_BYTES]), "gzip", ATTEMPT)


@pytest.mark.parametrize(
    "broken",
    [
        gzip.compress(body(GOOD))[:-4],
        gzip.compress(body(GOOD)) + b"more",
        gzip.compress(body(GOOD)) + gzip.compress(body(GOOD)),
        b"not gzip at all",
    ],
    ids=["torn", "trailing bytes", "two members", "plain text"],
)
def test_a_body_that_is_not_one_whole_gzip_stream_is_refused(broken: bytes) -> None:
    with pytest.raises(BadRequestError):
        read_batch(broken, "gzip", ATTEMPT)


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(BadRequestError, match="'br'"):
        read_batch(b"", "br", ATTEMPT)


@given(st.binary(max_size=400), st.sampled_from(["", "gzip"]))
def test_whatever_comes_is_a_batch_or_a_typed_error(sent: bytes, encoding: str) -> None:
    try:
        read_batch(sent, encoding, ATTEMPT)
    except FarmError:
        return


@given(st.lists(st.binary(max_size=80), max_size=5))
def test_whatever_lines_come_after_a_good_header_are_checked(lines: list[bytes]) -> None:
    try:
        batch = read(lines) if lines else None
    except FarmError:
        return
    assert batch is None or batch.header.count == len(batch.lines)
