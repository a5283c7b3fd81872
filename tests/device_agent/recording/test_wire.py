"""What bytes between host and usbmuxd are, however they are cut into pieces."""

import plistlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agent.recording.transcript import Sender
from device_agent.recording.wire import Chunk, Conversation, Message, Piece, Sealed, Stage
from tests.fakes.usbmuxd import HEADER, TLS, mux_frame, plist_frame

CONNECT = mux_frame({"MessageType": "Connect", "DeviceID": 3, "PortNumber": 0x7EF2}, 9)
ACCEPTED = mux_frame({"MessageType": "Result", "Number": 0}, 9)
REFUSED = mux_frame({"MessageType": "Result", "Number": 3}, 9)


def connected() -> Conversation:
    """With a port of the device."""
    conversation = Conversation()
    conversation.feed("host", CONNECT)
    conversation.feed("device", ACCEPTED)
    return conversation


def test_a_connect_that_is_answered_by_zero_opens_the_port() -> None:
    conversation = connected()
    assert (conversation.port, conversation.stage) == (62078, Stage.UNKNOWN)


def test_a_connect_that_is_refused_leaves_it_with_usbmuxd() -> None:
    conversation = Conversation()
    conversation.feed("host", CONNECT)
    conversation.feed("device", REFUSED)
    assert (conversation.port, conversation.stage) == (None, Stage.MUX)


@pytest.mark.parametrize(
    ("data", "stage"),
    [
        (plist_frame({"Request": "QueryType"}), Stage.PLIST),
        (plist_frame({"Request": "QueryType"}, plistlib.FMT_BINARY), Stage.PLIST),
        (TLS, Stage.TLS),
        (b'{"after":{}}\n', Stage.RAW),
        (b"hi", Stage.RAW),
        (b"\x00\x00\x01\x00garbage-garbage", Stage.RAW),
    ],
)
def test_the_first_bytes_tell_what_a_service_speaks(data: bytes, stage: Stage) -> None:
    conversation = connected()
    conversation.feed("host", data)
    assert conversation.stage is stage


def test_frames_turn_into_tls_where_the_handshake_begins() -> None:
    conversation = connected()
    (piece,) = conversation.feed("host", plist_frame({"Request": "StartSession"}))
    assert isinstance(piece, Message)
    assert conversation.feed("host", TLS) == [Sealed(len(TLS), (22, 23))]
    assert conversation.feed("device", TLS) == [Sealed(len(TLS), (22, 23))]


@given(st.integers(1, len(TLS)))
def test_tls_records_are_counted_wherever_they_are_cut(place: int) -> None:
    conversation = Conversation(Stage.TLS)
    pieces = conversation.feed("host", TLS[:place]) + conversation.feed("host", TLS[place:])
    records = [kind for piece in pieces if isinstance(piece, Sealed) for kind in piece.records]
    assert records == [22, 23]


@pytest.mark.parametrize(
    "data",
    [
        HEADER.pack(20, 1, 8, 1) + b"none",
        HEADER.pack(3, 1, 8, 1),
        HEADER.pack(16, 0, 8, 1),
        HEADER.pack(1 << 30, 1, 8, 1),
        HEADER.pack(40, 1, 8, 1) + b"<?xml but then it is none",
    ],
)
def test_what_is_no_frame_is_a_chunk_and_no_error(data: bytes) -> None:
    conversation = Conversation()
    pieces = conversation.feed("host", data) + [piece for _, piece in conversation.close()]
    assert b"".join(piece.data for piece in pieces if isinstance(piece, Chunk)) == data


def size_of(piece: Piece) -> int:
    """Bytes on the wire."""
    return len(piece.data) if isinstance(piece, Chunk) else piece.size_bytes


STREAM: list[tuple[Sender, bytes]] = [
    ("host", CONNECT),
    ("device", ACCEPTED),
    ("host", plist_frame({"Request": "GetValue"})),
    ("device", plist_frame({"Value": {"a": 1}}, plistlib.FMT_BINARY)),
    ("host", TLS),
    ("device", TLS),
]


@given(st.integers(1, 40))
def test_frames_are_the_same_however_they_are_cut(step: int) -> None:
    conversation, messages = Conversation(), []
    for sender, data in STREAM:
        for start in range(0, len(data), step):
            pieces = conversation.feed(sender, data[start : start + step])
            messages += [piece.content for piece in pieces if isinstance(piece, Message)]
    assert messages[2:] == [{"Request": "GetValue"}, {"Value": {"a": 1}}]
    assert conversation.stage is Stage.TLS


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["host", "device"]),
            st.binary(max_size=40) | st.sampled_from([data for _, data in STREAM]),
        ),
        max_size=8,
    )
)
def test_whatever_passes_no_byte_is_lost_and_nothing_fails(parts: list[tuple[Sender, bytes]]) -> None:
    conversation, seen = Conversation(), 0
    for sender, data in parts:
        seen += sum(size_of(piece) for piece in conversation.feed(sender, data))
    seen += sum(size_of(piece) for _, piece in conversation.close())
    assert seen == sum(len(data) for _, data in parts)
