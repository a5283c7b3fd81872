"""JetsamEvent reports: every known shape is read, and no bytes do harm."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agent.targets.ios.ips import (
    MAX_DEPTH,
    MAX_REPORT_BYTES,
    ReportUnreadableError,
    read_ips,
)
from device_agent.targets.ios.jetsam_report import (
    MAX_PROCESSES,
    JetsamReport,
    is_same_name,
    parse_jetsam_report,
    reported_process,
)
from tests.fakes.ips_reports import PAGE, crash, entry, ips, jetsam, victim

SAMPLES = Path(__file__).parents[5] / "shared" / "data" / "jetsam"
EXCERPTS_MISSING = "the published JetsamEvent excerpts are not beside this checkout, in ../shared/data/jetsam"
FILES = sorted(SAMPLES.glob("*.ips")) if SAMPLES.is_dir() else []
FULL = jetsam(entry("backboardd", 61), victim(), entry("Other", 301, reason="vm-pageshortage"))


def sample(start: str) -> JetsamReport:
    """The published excerpt whose file name begins so."""
    found = next((path for path in FILES if path.name.startswith(start)), None)
    if found is None:
        pytest.skip(EXCERPTS_MISSING)
    return parse_jetsam_report(found.read_bytes())


def test_every_published_excerpt_is_read() -> None:
    if not FILES:
        pytest.skip(EXCERPTS_MISSING)
    for path in FILES:
        report = parse_jetsam_report(path.read_bytes())
        assert report.complete, path.name
        assert report.taken_at is not None, path.name
        assert report.os_version, path.name


@pytest.mark.parametrize(
    ("start", "name", "pid", "footprint_bytes"),
    [
        ("01_", "MemoryTest", 2541, 89600 * PAGE),
        ("02_", "MyCoolApp", None, 92802 * PAGE),
        ("09_", "RebornTunnel", 4624, 960 * PAGE),
    ],
)
def test_published_victims_are_found(start: str, name: str, pid: int | None, footprint_bytes: int) -> None:
    report = sample(start)
    (found,) = report.victims
    assert (found.name, found.pid, found.reason) == (name, pid, "per-process-limit")
    assert report.footprint_bytes(found) == footprint_bytes


@pytest.mark.parametrize("start", ["03_", "05_", "07_", "10_", "11_"])
def test_a_published_report_without_a_visible_victim_names_nobody(start: str) -> None:
    report = sample(start)
    assert report.victims == ()
    assert report.largest_process


def test_published_systems_differ_and_are_told_apart() -> None:
    assert sample("07_").product == "iPhone14,7"
    assert sample("10_").os_version == "Apple TVOS 18.6 (22M84)"
    assert sample("10_").memory.page_size_bytes is None
    assert sample("11_").processes == ()
    assert sample("01_").largest_process is None
    assert "HealthMentalHealthWidgetExtensio" in {process.name for process in sample("07_").processes}


def test_published_fields_alone_are_read_as_processes_but_are_no_report() -> None:
    path = SAMPLES / "13_iphoneXR_fields_only.json"
    if not path.is_file():
        pytest.skip("the published field note is not beside this checkout, in ../shared/data/jetsam")
    with pytest.raises(ReportUnreadableError):
        parse_jetsam_report(path.read_bytes())
    read = [reported_process(each) for each in json.loads(path.read_text())["reports"]]
    assert [(each.reason, each.resident_pages, each.pid) for each in read] == [
        ("per-process-limit", 118454, None),
        ("per-process-limit", 121207, None),
    ]


def test_all_that_a_report_says_is_kept() -> None:
    report = parse_jetsam_report(FULL)
    assert report.taken_at == datetime(2026, 11, 29, 11, 10, 0, 250000, UTC)
    assert (report.memory.free_pages, report.memory.wired_pages) == (11, 14)
    assert (report.memory.compressor_pages, report.memory.uncompressed_pages) == (7, 21)
    ours = report.processes[1]
    assert (ours.priority, ours.states, ours.cpu_time_s) == (100, ("frontmost",), 1.5)
    assert (ours.freeze_skip_reason, ours.lifetime_max_pages) == ("none", 900)


def test_several_victims_are_all_named_and_the_largest_is_none_of_them() -> None:
    report = parse_jetsam_report(FULL)
    assert [(each.name, each.reason) for each in report.victims] == [
        ("Runner", "per-process-limit"),
        ("Other", "vm-pageshortage"),
    ]
    assert report.largest_process == "kernel_task"


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("pid", -1),
        ("pid", True),
        ("pid", 1.5),
        ("pid", "300"),
        ("rpages", 2**60),
        ("name", ["x"]),
        ("reason", 5),
    ],
)
def test_a_member_of_another_type_counts_as_absent(change: str, value: Any) -> None:
    report = parse_jetsam_report(jetsam({**victim(), change: value}))
    field = {"rpages": "resident_pages"}.get(change, change)
    assert getattr(report.processes[0], field) is None


def test_unknown_members_and_strange_entries_are_left_alone() -> None:
    report = parse_jetsam_report(jetsam(victim(neuralPages=4), **{"codeSigningMonitor": 2, "zones": [1, {}]}))
    assert len(report.victims) == 1
    assert parse_jetsam_report(jetsam(processes=[None, 3, "x", victim()])).victims[0].pid == 300
    assert parse_jetsam_report(jetsam(processes={"a": 1}, memoryStatus=[1])).processes == ()


@pytest.mark.parametrize(
    "text", ["", "yesterday", "0001-01-01 00:00:00.00 +1400", "2026-13-01 00:00:00 +0100"]
)
def test_a_time_that_is_none_is_absent(text: str) -> None:
    assert parse_jetsam_report(jetsam(taken=text)).taken_at is None


def test_a_cut_report_gives_the_processes_that_had_arrived_and_says_that_it_is_cut() -> None:
    marker = FULL.index(b'"Other"')
    report = parse_jetsam_report(FULL[:marker])
    assert not report.complete
    assert [each.pid for each in report.victims] == [300]
    assert report.memory.page_size_bytes == PAGE


@given(st.integers(0, len(FULL) - 1))
def test_a_report_cut_anywhere_never_invents_a_victim(length: int) -> None:
    try:
        report = parse_jetsam_report(FULL[:length])
    except ReportUnreadableError:
        return
    assert not report.complete
    whole = parse_jetsam_report(FULL)
    assert {(each.pid, each.reason) for each in report.victims} <= {
        (each.pid, each.reason) for each in whole.victims
    }


def test_more_processes_than_any_device_has_are_counted_and_left_out() -> None:
    many = [{"pid": pid} for pid in range(MAX_PROCESSES + 7)]
    report = parse_jetsam_report(jetsam(*many))
    assert (len(report.processes), report.processes_left_out) == (MAX_PROCESSES, 7)
    assert not report.complete


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "first document"),
        (b"not a report", "first document"),
        (b'{"bug_type":"298"', "cut"),
        (b'{"bug_type":"298"}\n', "no second document"),
        (b"[1]\n{}", "not an object"),
        (b'{"bug_type":"298"}\n{]', "closes nothing"),
        (b'{"bug_type":"298"}\n{"a" "b"}', "no JSON"),
        (b'{"bug_type":"298"}\n{"a":NaN}', "NaN"),
        (b'{"a":' * (MAX_DEPTH + 1), "deeper"),
        (b" " * (MAX_REPORT_BYTES + 1), "bytes"),
        (ips({"bug_type": "309"}, {}), "bug_type is '309'"),
        (ips({}, {}), "bug_type is ''"),
        (crash(), "bug_type is '309'"),
    ],
)
def test_what_is_no_report_is_refused_with_the_reason(content: bytes, says: str) -> None:
    with pytest.raises(ReportUnreadableError, match=says):
        parse_jetsam_report(content)


def read_or_refused(content: bytes) -> JetsamReport | None:
    """Any other exception fails the test."""
    try:
        return parse_jetsam_report(content)
    except ReportUnreadableError:
        return None


@given(st.binary(max_size=300))
def test_any_bytes_are_a_report_or_the_one_error(content: bytes) -> None:
    read_or_refused(content)


@settings(max_examples=300)
@given(
    st.sampled_from([FULL, *(path.read_bytes() for path in FILES)]),
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 8), st.binary(max_size=6)), min_size=1, max_size=8
    ),
)
def test_a_report_changed_anywhere_is_a_report_or_the_one_error(
    content: bytes, changes: list[tuple[int, int, bytes]]
) -> None:
    for place, length, inserted in changes:
        start = place % (len(content) + 1)
        content = content[:start] + inserted + content[start + length :]
    read_or_refused(content)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    ["date", "processes", "memoryStatus", "largestProcess", "product", "incident", "build"]
)
ENTRY_MEMBERS = st.sampled_from(
    ["pid", "name", "reason", "rpages", "states", "cpuTime", "freeze_skip_reason:"]
)


@settings(max_examples=200)
@given(
    st.dictionaries(MEMBERS, JSON_VALUES, max_size=4),
    st.lists(st.dictionaries(ENTRY_MEMBERS, JSON_VALUES), max_size=3),
)
def test_any_values_in_the_known_members_are_read(
    body: dict[str, Any], entries: list[dict[str, Any]]
) -> None:
    read_or_refused(jetsam(**{"processes": entries, **body}))


@pytest.mark.parametrize(
    ("reported", "own", "same"),
    [
        ("Runner", "Runner", True),
        ("Runner", "RunnerTests", False),
        ("HealthMentalHealthWidgetExtensio", "HealthMentalHealthWidgetExtension", True),
        ("HealthMentalHealthWidgetExtensi", "HealthMentalHealthWidgetExtension", False),
        ("ä" * 16, "ä" * 20, True),
        ("", "", False),
        (None, "Runner", False),
    ],
)
def test_names_are_compared_as_a_report_cuts_them(reported: str | None, own: str, same: bool) -> None:
    assert is_same_name(reported, own) is same


def test_text_that_no_database_holds_is_made_storable() -> None:
    report = parse_jetsam_report(jetsam(victim(reason="a\x00b\ud800")))
    assert report.victims[0].reason == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"


def test_a_byte_order_mark_and_windows_lines_do_no_harm() -> None:
    content = b"\xef\xbb\xbf" + FULL.replace(b"\n", b"\r\n")
    assert read_ips(content).complete
    assert len(parse_jetsam_report(content).victims) == 2
