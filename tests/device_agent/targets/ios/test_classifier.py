"""How a run ended: the table of rules against every kind of end, and what more evidence may change."""

from dataclasses import replace

import pytest

from contract.events import RuntimeExited, event_line, parse_event
from contract.failures import FAILURES
from device_agent.targets.ios.classifier import (
    REASON_OF_KIND,
    RULES,
    EndKind,
    classify,
    is_settled,
    run_end,
)
from device_agent.targets.ios.evidence import (
    Evidence,
    LastMemory,
    LogLine,
    UnreadableReport,
    read_reports,
)
from device_agent.targets.ios.findings import missing
from tests.fakes.end_of_run import (
    AT_LIMIT,
    KILL_LINE,
    KILLED,
    NOT_OURS,
    OURS,
    TABLE,
    C,
    K,
    both,
    reports,
    seen,
)
from tests.fakes.ips_reports import (
    jetsam,
    victim,
)


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_the_end_is_what_the_evidence_says(case: str) -> None:
    evidence, kind, confidence, reason = TABLE[case]
    verdict = classify(evidence)
    assert (verdict.kind, verdict.confidence, verdict.reason) == (kind, confidence, reason)
    assert verdict.evidence


def test_every_kind_and_every_rule_decides_some_case() -> None:
    assert {kind for _, kind, _, _ in TABLE.values()} == set(EndKind)
    decided = {
        (verdict.kind, verdict.confidence)
        for evidence, *_ in TABLE.values()
        for verdict in [classify(evidence)]
    }
    assert {(rule.kind, rule.confidence) for rule in RULES} - decided == {(K.STOPPED, C.POSSIBLE)}
    assert classify(seen(own_signal=9)).kind is K.STOPPED


@pytest.mark.parametrize("case", NOT_OURS, ids=str)
def test_a_report_that_is_not_ours_proves_nothing(case: str) -> None:
    evidence = both(reports(NOT_OURS[case]), exit=KILLED)
    verdict = classify(evidence)
    assert (verdict.kind, verdict.confidence) == (K.KILLED_OUTSIDE, C.LIKELY)
    assert any("no report names our pid and name" in gap for gap in missing(evidence))


def test_a_missing_report_is_told_and_never_decides() -> None:
    unlisted, listed = seen(exit=KILLED), seen(exit=KILLED, reports_listed=True)
    assert classify(unlisted).kind is classify(listed).kind is K.KILLED_OUTSIDE
    assert "the device's reports were not listed after the end" in missing(unlisted)
    assert "no report names our pid and name; they are late, rate limited or moved at times" in missing(
        listed
    )


def test_a_report_about_our_name_that_is_not_ours_is_told_to_the_person() -> None:
    evidence = both(reports(jetsam(victim(pid=299))), exit=KILLED)
    assert any("with pid 299" in gap and "not ours" in gap for gap in missing(evidence))


def test_an_unreadable_report_is_told() -> None:
    evidence = seen(unreadable_reports=(UnreadableReport("JetsamEvent-x.ips", "cut"),))
    assert "JetsamEvent-x.ips could not be read: cut" in missing(evidence)


@pytest.mark.parametrize(
    ("message", "writer", "is_kill"),
    [
        (KILL_LINE.message, 0, True),
        ("memorystatus: killing process 300 [Runner] in high band FOREGROUND (100)", 0, True),
        ("process Runner [300] exceeded mem limit: ActiveHard 1400 MB (fatal) memorystatus", 0, True),
        ("EXC_RESOURCE -> Runner[300] exceeded mem limit: ActiveHard 1400 MB (fatal)", 0, True),
        ("EXC_RESOURCE -> Runner[300] exceeded mem limit: ActiveSoft 1400 MB (non-fatal)", 0, False),
        ("memorystatus: killing process 301 [Runner] in high band", 0, False),
        ("memorystatus: killing process 300 [Safari] in high band", 0, False),
        ("memorystatus: killing process 3000 [Runner] in high band", 0, False),
        ("memorystatus: update pid 300 [Runner]", 0, False),
        (KILL_LINE.message, 300, False),
    ],
)
def test_only_the_kernels_line_about_our_pid_and_name_is_a_kill(
    message: str, writer: int, is_kill: bool
) -> None:
    verdict = classify(seen(log_lines=(LogLine(writer, message),)))
    assert (verdict.kind is K.JETSAM) is is_kill


@pytest.mark.parametrize(
    ("memory", "near"),
    [
        (LastMemory(1380, 20, 1400), True),
        (LastMemory(1380, None, 1400), True),
        (LastMemory(1380, 20), True),
        (LastMemory(1000, 400, 1400), False),
        (LastMemory(1380, 0), False),
        (LastMemory(1380, 0, 1380), False),
        (LastMemory(1380), False),
        (LastMemory(0, 0, 0), False),
    ],
)
def test_memory_is_short_only_when_the_headroom_is_known(memory: LastMemory, near: bool) -> None:
    assert memory.is_near_limit(0.1) is near


def test_gathering_goes_on_until_something_is_proven_or_the_deadline_passes() -> None:
    unsettled, over = seen(exit=KILLED), seen(exit=KILLED, gathering_over=True)
    proven = both(reports(jetsam(victim())), exit=KILLED)
    assert [is_settled(classify(each), each) for each in (unsettled, over, proven)] == [False, True, True]


def test_a_late_report_turns_a_kill_from_outside_into_jetsam() -> None:
    early = seen(exit=KILLED, reports_listed=True, gathering_over=True)
    late = both(reports(jetsam(victim(rpages=89600))), exit=KILLED, gathering_over=True)
    assert classify(early).kind is K.KILLED_OUTSIDE
    claim = classify(late)
    assert claim.kind is K.JETSAM
    assert any("89600 pages of 16384 B" in line for line in claim.evidence)


def test_a_late_report_confirms_what_was_inferred() -> None:
    inferred = seen(exit=KILLED, memory=AT_LIMIT)
    late = both(reports(jetsam(victim())), exit=KILLED, memory=AT_LIMIT)
    assert classify(inferred).kind is classify(late).kind is K.JETSAM
    assert classify(inferred).confidence < classify(late).confidence


def exit_event(evidence: Evidence) -> RuntimeExited:
    """As the device agent records it."""
    end = run_end(classify(evidence), evidence)
    return RuntimeExited(seq=4, t_mono_ns=7, exit_code=None, signal=9, end=end)


def test_the_end_carries_what_was_seen_and_what_would_make_it_surer() -> None:
    proven = exit_event(both(reports(jetsam(victim(rpages=89600))), exit=KILLED))
    assert proven.end is not None
    assert "per-process-limit" in proven.end.detail
    assert proven.end.confidence is C.PROVEN
    assert parse_event(event_line(proven)) == proven
    inferred = exit_event(seen(exit=KILLED, memory=AT_LIMIT))
    assert inferred.end is not None
    assert inferred.end.confidence < C.PROVEN
    assert any(line.startswith("missing:") for line in inferred.end.evidence)


def test_what_a_device_calls_its_reports_never_makes_an_end_that_cannot_be_sent() -> None:
    names = [f"{at}-" + "\udcff\0" * 4000 for at in range(60)]
    found, unreadable = read_reports((name, jetsam(victim())) for name in names)
    event = exit_event(replace(Evidence(OURS), reports=found, unreadable_reports=unreadable))
    assert event.end is not None
    assert parse_event(event_line(event)) == event


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_an_end_is_told_unless_the_exit_status_or_the_device_agent_says_it_as_well(case: str) -> None:
    evidence, kind, confidence, reason = TABLE[case]
    end = run_end(classify(evidence), evidence)
    if kind in {K.EXIT, K.STOPPED}:
        assert end is None
    else:
        assert end is not None
        assert (end.reason, end.confidence) == (reason, confidence)


def test_every_reason_says_whether_another_try_helps() -> None:
    retried = {kind for kind, reason in REASON_OF_KIND.items() if FAILURES[reason].retryable}
    assert retried == {K.HEAT, K.KILLED_OUTSIDE, K.DISCONNECTED, K.REBOOT}
