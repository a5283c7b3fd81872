"""The usbmuxd side, byte by byte."""

import plistlib
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tests.device_agent.virtual.fleet import Fleet
from tests.device_agent.virtual.muxing import MuxClient

LOCKDOWN = 62078


@pytest.fixture(scope="module")
def taken(session_fleet: Fleet) -> str:
    return session_fleet.take("18.5")


@pytest.fixture
def udid(fleet: Fleet, taken: str) -> Iterator[str]:
    """One device for all of these tests: each leaves it attached, once, and its link as it was."""
    yield taken
    if fleet.view(taken)["device_ids"]:
        fleet.fault(taken, "detach")
    fleet.fault(taken, "clear")
    fleet.fault(taken, "attach")


def numbers_of(client: MuxClient, udid: str) -> list[int]:
    listed = client.ask({"MessageType": "ListDevices"})["DeviceList"]
    return [each["DeviceID"] for each in listed if each["Properties"]["SerialNumber"] == udid]


def next_about(client: MuxClient, number: int) -> str:
    """The next message about one entry; others come and go beside it."""
    while True:
        tag, message = client.receive()
        assert tag == 0
        if message.get("DeviceID") == number:
            return str(message["MessageType"])


def test_a_device_is_listed_once_with_its_udid_and_its_link(fleet: Fleet, udid: str) -> None:
    with MuxClient(fleet.usbmuxd_socket) as client:
        listed = client.ask({"MessageType": "ListDevices"}, tag=77)["DeviceList"]
    (found,) = [each for each in listed if each["Properties"]["SerialNumber"] == udid]
    assert found["MessageType"] == "Attached"
    assert found["Properties"]["ConnectionType"] == "USB"
    assert found["Properties"]["DeviceID"] == found["DeviceID"]


def test_a_listener_hears_what_is_there_before_what_comes(fleet: Fleet, udid: str) -> None:
    with MuxClient(fleet.usbmuxd_socket) as asking, MuxClient(fleet.usbmuxd_socket) as listening:
        (number,) = numbers_of(asking, udid)
        assert listening.ask({"MessageType": "Listen"}) == {"MessageType": "Result", "Number": 0}
        assert next_about(listening, number) == "Attached"
        fleet.fault(udid, "detach")
        assert next_about(listening, number) == "Detached"
        fleet.fault(udid, "attach")
        (again,) = numbers_of(asking, udid)
        assert again > number, "a DeviceID is never used again"
        assert next_about(listening, again) == "Attached"


@pytest.mark.parametrize("order", ["sockets-first", "notice-first"])
def test_a_pulled_cable_ends_connections_before_or_after_it_is_told(
    fleet: Fleet, udid: str, order: str
) -> None:
    seen: list[object] = []
    with MuxClient(fleet.usbmuxd_socket) as open_one, MuxClient(fleet.usbmuxd_socket) as listening:
        (number,) = numbers_of(open_one, udid)
        assert open_one.connect(number, LOCKDOWN) == 0
        listening.ask({"MessageType": "Listen"})
        assert next_about(listening, number) == "Attached"
        ended = threading.Thread(target=lambda: seen.append(open_one.until_end()))
        told = threading.Thread(target=lambda: seen.append(next_about(listening, number)))
        ended.start()
        told.start()
        fleet.fault(udid, "detach", order=order)
        ended.join(10.0)
        told.join(10.0)
    assert seen == ([b"", "Detached"] if order == "sockets-first" else ["Detached", b""])


def test_a_port_on_which_nobody_listens_is_refused_and_the_connection_goes_on(
    fleet: Fleet, udid: str
) -> None:
    with MuxClient(fleet.usbmuxd_socket) as client:
        (number,) = numbers_of(client, udid)
        assert client.connect(number, 9999) == 3
        assert client.connect(999_999, LOCKDOWN) == 2
        assert client.connect(number, LOCKDOWN) == 0


def test_a_plain_request_reaches_lockdownd(fleet: Fleet, udid: str) -> None:
    with MuxClient(fleet.usbmuxd_socket) as client:
        (number,) = numbers_of(client, udid)
        assert client.connect(number, LOCKDOWN) == 0
        body = plistlib.dumps({"Request": "QueryType", "Label": "test"})
        client.socket.sendall(struct.pack(">I", len(body)) + body)
        (size,) = struct.unpack(">I", client.exactly(4))
        assert plistlib.loads(client.exactly(size))["Type"] == "com.apple.mobile.lockdown"


def test_pair_records_are_kept_by_name_and_told_as_missing(fleet: Fleet) -> None:
    with MuxClient(fleet.usbmuxd_socket) as client:
        assert client.ask({"MessageType": "ReadPairRecord", "PairRecordID": "NONE"})["Number"] == 2
        saved = {"MessageType": "SavePairRecord", "PairRecordID": "TEST-1", "PairRecordData": b"record"}
        assert client.ask(saved)["Number"] == 0
        read = client.ask({"MessageType": "ReadPairRecord", "PairRecordID": "TEST-1"})
        assert read["PairRecordData"] == b"record"
        assert client.ask({"MessageType": "DeletePairRecord", "PairRecordID": "TEST-1"})["Number"] == 0
        assert client.ask({"MessageType": "ReadPairRecord", "PairRecordID": "TEST-1"})["Number"] == 2


def test_a_pair_record_cannot_leave_its_folder(fleet: Fleet) -> None:
    with MuxClient(fleet.usbmuxd_socket) as client:
        escape = {"MessageType": "SavePairRecord", "PairRecordID": "../escaped", "PairRecordData": b"x"}
        client.send(escape)
        assert client.until_end() == b""
    assert not (fleet.home / "escaped.plist").exists()


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack("<IIII", 1 << 30, 1, 8, 1),
        struct.pack("<IIII", 3, 1, 8, 1),
        struct.pack("<IIII", 20, 1, 8, 1) + b"none",
        struct.pack("<IIII", 16 + 22, 1, 8, 1) + b"<?xml version='1.0'?><",
    ],
    ids=["endless", "shorter than its head", "no plist", "half a plist"],
)
def test_what_is_no_request_ends_its_connection_and_no_other(fleet: Fleet, sent: bytes) -> None:
    with MuxClient(fleet.usbmuxd_socket) as wrong, MuxClient(fleet.usbmuxd_socket) as right:
        wrong.socket.sendall(sent)
        assert wrong.until_end() == b""
        assert right.ask({"MessageType": "ReadBUID"})["BUID"]


def test_the_old_binary_protocol_is_refused_by_number(fleet: Fleet) -> None:
    with MuxClient(fleet.usbmuxd_socket) as client:
        client.send({"MessageType": "ListDevices"}, version=0, kind=3)
        assert client.receive()[1]["Number"] == 6


def test_a_udid_can_be_listed_over_usb_and_over_the_network(fleet: Fleet, udid: str) -> None:
    fleet.fault(udid, "duplicate", kind="Network")
    with MuxClient(fleet.usbmuxd_socket) as client:
        listed = client.ask({"MessageType": "ListDevices"})["DeviceList"]
    kinds = [
        each["Properties"]["ConnectionType"] for each in listed if each["Properties"]["SerialNumber"] == udid
    ]
    assert sorted(kinds) == ["Network", "USB"]


def test_a_stalled_link_is_silent_and_then_answers(fleet: Fleet, udid: str) -> None:
    with MuxClient(fleet.usbmuxd_socket) as client:
        (number,) = numbers_of(client, udid)
        assert client.connect(number, LOCKDOWN) == 0
        fleet.fault(udid, "stall")
        body = plistlib.dumps({"Request": "QueryType", "Label": "test"})
        client.socket.sendall(struct.pack(">I", len(body)) + body)
        client.socket.settimeout(0.4)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(10.0)
        fleet.fault(udid, "resume")
        assert client.exactly(4)


def test_a_slow_link_takes_its_time(fleet: Fleet, udid: str) -> None:
    fleet.fault(udid, "throttle", latency_s=0.3)
    with MuxClient(fleet.usbmuxd_socket) as client:
        (number,) = numbers_of(client, udid)
        assert client.connect(number, LOCKDOWN) == 0
        body = plistlib.dumps({"Request": "QueryType", "Label": "test"})
        started_s = time.monotonic()
        client.socket.sendall(struct.pack(">I", len(body)) + body)
        client.exactly(4)
        # A lower bound only: the machine may be slow as well.
        assert time.monotonic() - started_s >= 0.3
