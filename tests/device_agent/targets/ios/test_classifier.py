"""How a run ended: the table of rules against every kind of end, and what more evidence may change."""

from dataclasses import replace

import pytest

from contract.events import AppCrashed, JetsamKilled, event_line, parse_event
from contract.failures import FAILURES
from device_agent.targets.ios.classifier import (
    REASON_OF_KIND,
    RULES,
    EndKind,
    classify,
)
from device_agent.targets.ios.evidence import (
    Evidence,
    LastMemory,
    LogLine,
    UnreadableReport,
    read_reports,
)
from device_agent.targets.ios.verdict_event import verdict_event
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
    assert any("no report names our pid and name" in gap for gap in verdict.missing)


def test_a_missing_report_is_told_and_never_decides() -> None:
    unlisted, listed = seen(exit=KILLED), seen(exit=KILLED, reports_listed=True)
    assert classify(unlisted).kind is classify(listed).kind is K.KILLED_OUTSIDE
    assert "the device's reports were not listed after the end" in classify(unlisted).missing
    assert "no report names our pid and name; they are late, rate limited or moved at times" in (
        classify(listed).missing
    )


def test_a_report_about_our_name_that_is_not_ours_is_told_to_the_person() -> None:
    verdict = classify(both(reports(jetsam(victim(pid=299))), exit=KILLED))
    assert any("with pid 299" in gap and "not ours" in gap for gap in verdict.missing)


def test_an_unreadable_report_is_told() -> None:
    verdict = classify(seen(unreadable_reports=(UnreadableReport("JetsamEvent-x.ips", "cut"),)))
    assert "JetsamEvent-x.ips could not be read: cut" in verdict.missing


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
    assert not classify(seen(exit=KILLED)).settled
    assert classify(seen(exit=KILLED, gathering_over=True)).settled
    assert classify(both(reports(jetsam(victim())), exit=KILLED)).settled


def test_a_late_report_turns_a_kill_from_outside_into_jetsam() -> None:
    early = seen(exit=KILLED, reports_listed=True, gathering_over=True)
    late = both(reports(jetsam(victim(rpages=89600))), exit=KILLED, gathering_over=True)
    assert classify(early).kind is K.KILLED_OUTSIDE
    verdict = classify(late)
    assert (verdict.kind, verdict.victim.resident_pages) == (K.JETSAM, 89600)


def test_a_late_report_confirms_what_was_inferred() -> None:
    inferred = seen(exit=KILLED, memory=AT_LIMIT)
    late = both(reports(jetsam(victim())), exit=KILLED, memory=AT_LIMIT)
    verdict = classify(late)
    assert classify(inferred).kind is verdict.kind is K.JETSAM
    assert classify(inferred).confidence < verdict.confidence
    assert verdict.report is not None
    assert verdict.report.memory.page_size_bytes == 16384


def test_the_event_of_a_kill_carries_report_and_evidence() -> None:
    evidence = both(reports(jetsam(victim(rpages=89600))), exit=KILLED)
    event = verdict_event(classify(evidence), evidence, 4, 7)
    assert isinstance(event, JetsamKilled)
    assert (event.report_found, event.kill_reason, event.footprint_pages) == (
        True,
        "per-process-limit",
        89600,
    )
    assert parse_event(event_line(event)) == event
    inferred = seen(exit=KILLED, memory=AT_LIMIT)
    event = verdict_event(classify(inferred), inferred, 4, 7)
    assert isinstance(event, JetsamKilled)
    assert (event.report_found, event.footprint_pages) == (False, None)
    assert any(line.startswith("missing:") for line in event.evidence)


def test_what_a_device_calls_its_reports_never_makes_an_event_that_cannot_be_sent() -> None:
    names = [f"{at}-" + "\udcff\0" * 4000 for at in range(60)]
    found, unreadable = read_reports((name, jetsam(victim())) for name in names)
    evidence = replace(Evidence(OURS), reports=found, unreadable_reports=unreadable)
    event = verdict_event(classify(evidence), evidence, 1, 1)
    assert isinstance(event, JetsamKilled)
    assert parse_event(event_line(event)) == event


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_an_event_names_the_verdicts_reason_and_is_written_for_kills_and_crashes_only(case: str) -> None:
    evidence, kind, _, reason = TABLE[case]
    event = verdict_event(classify(evidence), evidence, 1, 1)
    if kind is K.JETSAM:
        assert isinstance(event, JetsamKilled)
    elif kind in {K.CRASH, K.WATCHDOG, K.HEAT, K.KILLED_OUTSIDE}:
        assert isinstance(event, AppCrashed)
        assert event.reason is reason
    else:
        assert event is None


def test_every_reason_says_whether_another_try_helps() -> None:
    retried = {kind for kind, reason in REASON_OF_KIND.items() if FAILURES[reason].retryable}
    assert retried == {K.HEAT, K.KILLED_OUTSIDE, K.DISCONNECTED, K.REBOOT}
