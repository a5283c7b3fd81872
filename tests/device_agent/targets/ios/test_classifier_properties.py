"""Properties of the classifier: it never fails, and more evidence for an end never speaks against it."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from contract.events import RuntimeExited, event_line, parse_event
from contract.run_end import Confidence
from device_agent.targets.ios.classifier import (
    EndKind,
    claims_of,
    classify,
    run_end,
)
from device_agent.targets.ios.evidence import (
    Evidence,
    ExitSeen,
    LastMemory,
    LogLine,
)
from tests.fakes.end_of_run import KILL_LINE, NOT_OURS, QUIT, C, K, both, reports
from tests.fakes.ips_reports import (
    FORCE_QUIT,
    HEAT,
    WATCHDOG,
    crash,
    jetsam,
    victim,
)

EXITS = st.none() | st.builds(ExitSeen, st.none() | st.integers(0, 255), st.none() | st.integers(0, 31))
MOMENTS = st.none() | st.floats(0, 100)
MEMORIES = st.none() | st.builds(
    LastMemory, st.integers(0, 2**40), st.none() | st.integers(0, 2**40), st.none() | st.integers(0, 2**40)
)
CONTENTS = [
    jetsam(victim()),
    crash(),
    *(crash(termination=each) for each in (WATCHDOG, HEAT)),
    *NOT_OURS.values(),
]
LINES = st.lists(
    st.builds(LogLine, st.integers(0, 400), st.just(KILL_LINE.message) | st.text(max_size=60)), max_size=2
)


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    """Anything that can be observed together, and much that cannot."""
    return both(
        reports(*draw(st.lists(st.sampled_from(CONTENTS), max_size=2))),
        detached_s=draw(MOMENTS),
        reattached_s=draw(MOMENTS),
        boot_before=draw(st.sampled_from([None, "", "a", "b"])),
        boot_after=draw(st.sampled_from([None, "", "a", "b"])),
        exit=draw(EXITS),
        absent_observations=draw(st.integers(0, 3)),
        seen_alive=draw(st.booleans()),
        log_lines=tuple(draw(LINES)),
        memory=draw(MEMORIES),
        silent_s=draw(MOMENTS),
        own_signal=draw(st.sampled_from([None, 9, 15])),
        lease_expired=draw(st.booleans()),
        gathering_over=draw(st.booleans()),
    )


def confidence_in(evidence: Evidence, kind: EndKind) -> Confidence:
    """How sure the table is of this end, whatever else it says."""
    return max((claim.confidence for claim in claims_of(evidence) if claim.kind is kind), default=C.NONE)


def more(evidence: Evidence, kind: EndKind) -> Evidence:
    """Something more that speaks for this end."""
    extra = {
        K.JETSAM: reports(jetsam(victim())).reports,
        K.CRASH: reports(crash()).reports,
        K.WATCHDOG: reports(crash(termination=WATCHDOG)).reports,
        K.HEAT: reports(crash(termination=HEAT)).reports,
        K.KILLED_OUTSIDE: reports(crash(termination=FORCE_QUIT)).reports,
    }
    facts: dict[EndKind, dict[str, object]] = {
        K.EXIT: {"exit": QUIT},
        K.STOPPED: {"own_signal": evidence.exit.signal if evidence.exit and evidence.exit.signal else 9},
        K.DISCONNECTED: {"detached_s": 200.0},
        K.STALL: {"silent_s": 99.0, "seen_alive": True},
        K.REBOOT: {"boot_before": "a", "boot_after": "c"},
        K.UNKNOWN: {},
    }
    if kind in extra:
        return both(evidence, reports=(*evidence.reports, *extra[kind]))
    return both(evidence, **facts[kind])


@settings(max_examples=300, deadline=None)
@given(evidences())
def test_any_evidence_has_an_end_that_an_event_can_carry(evidence: Evidence) -> None:
    claim = classify(evidence)
    assert (claim.reason is None) <= (claim.kind is K.STOPPED)
    end = run_end(claim, evidence)
    event = RuntimeExited(seq=1, t_mono_ns=1, exit_code=None, signal=None, end=end)
    assert parse_event(event_line(event)) == event


@settings(max_examples=300, deadline=None)
@given(evidences(), st.sampled_from(EndKind))
def test_more_evidence_for_an_end_never_makes_it_less_certain(evidence: Evidence, kind: EndKind) -> None:
    added = more(evidence, kind)
    assert confidence_in(added, kind) >= confidence_in(evidence, kind)
    if classify(evidence).kind is kind:
        assert classify(added).kind is kind


@settings(max_examples=200, deadline=None)
@given(evidences(), st.sampled_from(list(NOT_OURS.values())))
def test_a_report_that_is_not_ours_changes_no_verdict(evidence: Evidence, content: bytes) -> None:
    added = both(evidence, reports=(*evidence.reports, *reports(content).reports))
    before, after = classify(evidence), classify(added)
    assert (before.kind, before.confidence, before.evidence) == (after.kind, after.confidence, after.evidence)


def test_the_order_in_which_reports_come_changes_no_verdict() -> None:
    contents = (jetsam(victim()), crash(), NOT_OURS["our name with an older pid"])
    kinds = {
        classify(reports(*order)).kind for order in product(contents, repeat=3) if set(order) == set(contents)
    }
    assert kinds == {K.JETSAM}
