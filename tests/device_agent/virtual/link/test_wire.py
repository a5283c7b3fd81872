"""Plists from strangers: a dictionary, or one named refusal."""

import plistlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from device_agent.virtual.link.wire import parse_plist

VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=20) | st.text("abc", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=300))
@example(b"<?xml version='1.0'?><")
@example(b"bplist00" + bytes(32))
@example(plistlib.dumps([1, 2]))
def test_foreign_bytes_are_a_dictionary_or_a_value_error(data: bytes) -> None:
    try:
        parsed = parse_plist(data)
    except ValueError:
        return
    assert isinstance(parsed, dict)


@given(
    st.dictionaries(st.text("abc"), VALUES, max_size=4),
    st.sampled_from(list(plistlib.PlistFormat)),
    st.data(),
)
def test_a_damaged_message_is_a_dictionary_or_a_value_error(
    message: dict[str, object], form: plistlib.PlistFormat, data: st.DataObject
) -> None:
    sent = bytearray(plistlib.dumps(message, fmt=form))
    assert parse_plist(bytes(sent)) == message
    sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(parse_plist(bytes(sent)), dict)
    except ValueError:
        return


def test_a_list_is_not_a_message() -> None:
    with pytest.raises(ValueError, match="not a dictionary"):
        parse_plist(plistlib.dumps([]))
