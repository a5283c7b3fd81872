"""Which attached devices may be used."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.targets.ios.presence import TWINS, WIRELESS, Presence, presences
from device_agent.targets.ios.usbmux import MuxEntry

U = "00008140-001A2B3C4D5E6F70"


@pytest.mark.parametrize(
    ("entries", "mux_id", "problem"),
    [
        ([MuxEntry(3, U, "USB")], 3, ""),
        ([MuxEntry(3, U, "USB"), MuxEntry(9, U, "Network")], 3, ""),
        ([MuxEntry(9, U, "Network")], 9, WIRELESS),
        ([MuxEntry(3, U, "USB"), MuxEntry(4, U, "USB")], 4, TWINS),
        ([MuxEntry(3, U, "USB"), MuxEntry(4, U, "USB"), MuxEntry(5, U, "Network")], 4, TWINS),
    ],
)
def test_the_cable_goes_before_wifi_and_twins_block_each_other(
    entries: list[MuxEntry], mux_id: int, problem: str
) -> None:
    assert presences(entries) == {U: Presence(U, mux_id, problem)}


ENTRIES = st.lists(
    st.builds(
        MuxEntry, st.integers(1, 20), st.sampled_from(["a", "b", "c"]), st.sampled_from(["USB", "Network"])
    ),
    unique_by=lambda entry: entry.mux_id,
)


@given(ENTRIES)
def test_every_serial_is_named_once_whatever_the_order(entries: list[MuxEntry]) -> None:
    found = presences(entries)
    assert set(found) == {entry.udid for entry in entries}
    assert presences(reversed(entries)) == found
    for udid, presence in found.items():
        cables = [entry for entry in entries if entry.udid == udid and entry.connection == "USB"]
        assert (presence.problem == "") is (len(cables) == 1)
