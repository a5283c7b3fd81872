"""The control socket: what it refuses, what waits for its moment, what it counts; the table of faults."""

import json
import socket
import stat
from typing import Any

import pytest

from contract.virtual_devices import FAULTS, checked_options
from device_agent.virtual.faults.faults import PLAYERS
from tests.device_agent.virtual.fleet import Fleet


@pytest.fixture(scope="module")
def udid(session_fleet: Fleet) -> str:
    return session_fleet.take("18.5")


def refused(fleet: Fleet, **request: Any) -> tuple[str, str]:
    answer = fleet.ask(**request)
    assert not answer["ok"]
    return answer["error"], answer["detail"]


def test_every_fault_of_the_table_is_played_by_the_emulator_and_no_other() -> None:
    assert set(PLAYERS) == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_says_what_it_does_and_takes_its_own_defaults(name: str) -> None:
    kind = FAULTS[name]
    assert kind.help.endswith(".")
    assert checked_options(kind, {}) == {option.name: option.default for option in kind.options}


@pytest.mark.parametrize(
    ("request_", "error", "said"),
    [
        ({"fault": "lick"}, "unknown-fault", "there is no fault 'lick'"),
        ({"fault": "lock", "options": {"hard": 1}}, "unknown-fault", "no option 'hard'"),
        ({"fault": "detach", "options": {"order": "first"}}, "unknown-fault", "sockets-first"),
        ({"fault": "fill", "options": {"free_bytes": "much"}}, "unknown-fault", "free_bytes"),
        ({"fault": "crash"}, "not-possible-now", "no app runs"),
        ({"fault": "tunnel-death"}, "not-possible-now", "no tunnel"),
        ({"fault": "lock", "at": "later"}, "bad-request", "at"),
        ({"fault": "lock", "udid": "00008140-FFFFFFFFFFFFFFFF"}, "unknown-device", "no virtual device"),
        ({"fault": "lock", "unknown": 1}, "bad-request", "unknown"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(
    fleet: Fleet, udid: str, request_: dict[str, Any], error: str, said: str
) -> None:
    code, detail = refused(fleet, **{"command": "fault", "udid": udid, **request_})
    assert code == error
    assert said in detail


def test_a_line_that_is_no_request_is_refused_and_the_next_one_is_heard(fleet: Fleet) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10.0)
        connection.connect(str(fleet.home / "control.sock"))
        connection.sendall(b'nonsense\n{"command": "list"}\n')
        with connection.makefile("rb") as lines:
            assert json.loads(lines.readline())["error"] == "bad-request"
            assert json.loads(lines.readline())["ok"]


def test_sockets_and_folder_are_for_their_owner_only(fleet: Fleet) -> None:
    for path in (fleet.home / "control.sock", fleet.home / "usbmuxd.sock", fleet.home / "devices"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_fault_waits_for_its_moment_and_what_became_of_it_is_kept(fleet: Fleet, udid: str) -> None:
    device = fleet.fault(udid, "lock", at="delay:0.1")
    assert device["counters"]["faults_waiting"] == 1
    device = fleet.wait_for(udid, lambda device: device["is_locked"])
    assert device["played"][-1] == {"fault": "lock", "at": "delay:0.1", "refused": ""}
    fleet.fault(udid, "unlock")
    fleet.fault(udid, "crash", at="delay:0.05")
    device = fleet.wait_for(udid, lambda device: device["played"][-1]["fault"] == "crash")
    assert "no app runs" in device["played"][-1]["refused"]


def test_faults_that_wait_are_forgotten_on_demand_and_bounded(fleet: Fleet, udid: str) -> None:
    for _ in range(64):
        fleet.fault(udid, "lock", at="event:1000000")
    code, _ = refused(fleet, command="fault", udid=udid, fault="lock", at="event:1")
    assert code == "unknown-fault"
    assert fleet.fault(udid, "clear")["counters"]["faults_waiting"] == 0


def test_a_clone_shares_the_udid_and_nothing_else(fleet: Fleet) -> None:
    udid = fleet.take("27.0")
    fleet.fault(udid, "duplicate", kind="clone")
    both = [each for each in fleet.ask(command="list")["view"]["devices"] if each["udid"] == udid]
    assert len(both) == 2
    assert len({each["device_name"] for each in both}) == 2
    assert len({number for each in both for number in each["device_ids"]}) == 2
