"""Lines are the same however their bytes arrive."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from device_agent.collect.framing import LineFramer, TooLong

LIMIT = 8


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(at)]


lines = st.lists(st.binary(max_size=LIMIT * 2).map(lambda line: line.replace(b"\n", b"")))


@given(
    lines,
    st.binary(max_size=LIMIT * 2).map(lambda rest: rest.replace(b"\n", b"")),
    st.lists(st.integers(0, 500)),
)
def test_any_chunking_gives_the_same_lines_and_the_same_rest(
    whole: list[bytes], torn: bytes, places: list[int]
) -> None:
    data = b"".join(line + b"\n" for line in whole) + torn
    framer = LineFramer(LIMIT)
    found = [line for chunk in cut(data, places) for line in framer.feed(chunk)]
    assert found == [line if len(line) <= LIMIT else TooLong(len(line)) for line in whole]
    assert framer.pending_bytes == len(torn)


def test_a_line_at_the_limit_is_kept_and_one_byte_more_is_counted() -> None:
    framer = LineFramer(LIMIT)
    assert framer.feed(b"x" * LIMIT + b"\n" + b"y" * (LIMIT + 1) + b"\n\nz\n") == [
        b"x" * LIMIT,
        TooLong(LIMIT + 1),
        b"",
        b"z",
    ]


def test_an_endless_line_takes_no_memory() -> None:
    framer = LineFramer(LIMIT)
    for _ in range(1000):
        assert framer.feed(b"x" * 1000) == []
    assert len(framer._waiting) <= LIMIT
    assert framer.pending_bytes == 1_000_000
