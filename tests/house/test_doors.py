"""Nothing is stored that nobody reads, nothing promised that nobody makes; exceptions are listed here."""

from collections.abc import Iterator
from enum import StrEnum

import pytest

from contract import events, routes
from contract.administration import AuditAction
from contract.events import EventEnvelope
from contract.failures import FailureReason
from contract.states import TargetKind
from controller.db.models import JobRow
from controller.states.devices import DEVICE_DEADLINES, DeviceCause
from controller.states.work import ATTEMPT_DEADLINES, AttemptCause, JobCause, RunCause
from tests.house import door_rules
from tests.house.repository import Source, broken, package_sources, sources

# Each with its reason: whoever adds one writes down why nobody here makes or reads it.
MADE_ELSEWHERE = {
    "MemoryWarned": "emitted by the runtime on an iPhone: the system tells only the app",
    "BlocksAllocated": "runtime/engine/trace.py hands the class on to the function that makes it",
    "BlocksShared": "as BlocksAllocated",
    "BlocksReleased": "as BlocksAllocated",
}
RAISED_ELSEWHERE = {
    "BUFFER_TOO_LARGE": "raised by the runtime on an iPhone: Metal bounds a buffer",
}
TARGETS_TO_COME = {
    "ENDPOINT": "requests of 0.1 may name it; a new one is refused (controller/runs/prepare.py)",
}
COLUMNS_FOR_LATER = {
    "EventBatchRow.received_at": "beside sent_at: shows the skew of a device agent's clock",
    "DeviceRow.first_seen_at": "waits a release for its removal (ADR 0007)",
    "EndedSessionRow.cookie_sha256": "the key: looked up by `session.get`",
    "JobRow.done_at": "waits a release for its removal (ADR 0007)",
    "JobRow.waiting_reason": "waits a release for its removal (ADR 0007)",
    "AttemptRow.device_generation": "waits a release for its removal (ADR 0007)",
    "LeaseRow.granted_at": "beside renewed_at and expires_at: the life of a lease for who looks into a fault",
}
CALLED_ELSEWHERE = {
    "encode_archive": "called by the archiver of DTX messages",
    "capture_signals": "overrides a method of uvicorn",
    "get_manifest_from_tss": "overrides a function of pymobiledevice3",
    "next_look": "kept for histories of runs, which come next",
    "screen": "kept for bisecting, which comes next",
    "confirm": "as screen",
    "reference_attention": "the oracle that every kernel is compared with, beside the kernels",
    "parse_crash_report": "the border of a format: tests read recorded reports through it",
    "parse_jetsam_report": "as parse_crash_report",
    "worker_pids": "for tests that end a worker: only its supervisor knows the process",
    "listeners": "for tests that wait until a topic is heard",
    "limit_pages": "for tests that fill a disk",
    "registers": "what the compiled kernel takes, which a test bounds",
    "spilled_bytes": "as registers",
    "lines_of": "the inverse of a shape's packing, which a test needs to look inside",
    "fork": "copy-on-write of a block table, the rule that the pool's invariants are tested with",
}


ROUTES_FOR_OTHERS = {
    "SERVICE_METRICS": "for Prometheus",
}


def _product() -> list[Source]:
    """All that is not a test: packages, migrations, benchmarks."""
    return [source for source in sources() if not source.is_in("tests")]


def _missing(found: set[str], listed: dict[str, str]) -> str:
    """What is found and not listed, and what is listed and no longer found."""
    new, old = sorted(found - listed.keys()), sorted(listed.keys() - found)
    return "; ".join(
        filter(None, [f"not listed: {new}" if new else "", f"no longer so: {old}" if old else ""])
    )


def _types(root: type[EventEnvelope]) -> Iterator[type[EventEnvelope]]:
    for child in root.__subclasses__():
        yield child
        yield from _types(child)


def test_every_event_type_has_a_producer_or_is_listed() -> None:
    made = door_rules.calls(source for source in package_sources() if not source.is_in("contract"))
    names = {kind.__name__ for kind in _types(EventEnvelope)} & set(events.__all__)
    assert len(names) > 30
    assert not _missing(names - made, MADE_ELSEWHERE)


def test_every_failure_reason_is_raised_somewhere_or_is_listed() -> None:
    elsewhere = [source for source in package_sources() if not source.is_in("contract/failures.py")]
    # device_agent/targets/ios/errors.py calls the registry _R.
    raised = door_rules.members_used(elsewhere, "FailureReason") | door_rules.members_used(elsewhere, "_R")
    assert not _missing({reason.name for reason in FailureReason} - raised, RAISED_ELSEWHERE)


def test_every_kind_of_target_is_reported_by_a_device_agent_or_is_listed() -> None:
    agents = [source for source in package_sources() if source.is_in("device_agent")]
    assert not _missing(
        {kind.name for kind in TargetKind} - door_rules.members_used(agents, "TargetKind"), TARGETS_TO_COME
    )


@pytest.mark.parametrize("words", [AttemptCause, DeviceCause, JobCause, RunCause, AuditAction])
def test_every_cause_of_a_state_and_every_act_of_the_audit_is_raised_somewhere(words: type[StrEnum]) -> None:
    # The tables name every cause; whoever raises one stands outside of them.
    raising = [s for s in package_sources() if s.is_in("controller") and not s.is_in("controller/states")]
    raised = door_rules.members_used(raising, words.__name__)
    raised |= {cause.name for cause in _causes_of_deadlines() if isinstance(cause, words)}
    assert not {word.name for word in words} - raised


def _causes_of_deadlines() -> set[StrEnum]:
    """Raised by time alone, from the tables."""
    return {deadline.cause for deadline in (*ATTEMPT_DEADLINES.values(), *DEVICE_DEADLINES.values())}


def test_every_column_has_a_reader_or_is_listed() -> None:
    models = [source for source in package_sources() if source.is_in("controller/db/models")]
    readers = [s for s in package_sources() if s.is_in("controller") and not s.is_in("controller/db/models")]
    found = {name for name, _ in door_rules.unread_columns(models, door_rules.uses(readers))}
    if "waiting_reason" in JobRow.__table__.columns:
        # Named as a field of REST is, so that names alone cannot tell it from that.
        found.add("JobRow.waiting_reason")
    assert not _missing(found, COLUMNS_FOR_LATER)


def test_every_public_function_has_a_caller_outside_of_the_tests_or_is_listed() -> None:
    found = door_rules.uncalled_functions(list(package_sources()), door_rules.uses(_product()))
    violations = [violation for name, violation in found if name not in CALLED_ELSEWHERE]
    assert not violations, broken(violations)


def test_what_is_listed_as_without_a_caller_still_is() -> None:
    found = door_rules.uncalled_functions(list(package_sources()), door_rules.uses(_product()))
    stale = CALLED_ELSEWHERE.keys() - {name for name, _ in found}
    assert not stale, f"take out of CALLED_ELSEWHERE: {sorted(stale)} (gone, or called now)"


def test_every_route_has_a_caller_among_our_own_programs_or_is_listed() -> None:
    callers = [source for source in package_sources() if not source.is_in("contract", "controller")]
    used = door_rules.members_used(callers, "routes") | {
        name for name in door_rules.uses(callers) if name.isupper()
    }
    names = {name for name, value in vars(routes).items() if isinstance(value, routes.Route)}
    assert len(names) > 30
    assert not _missing(names - used, ROUTES_FOR_OTHERS)


def test_a_seeded_function_without_a_caller_is_found() -> None:
    lonely = Source.parse("controller/api/x.py", "def lonely() -> None: ...\ndef _own() -> None: ...\n")
    caller = Source.parse("controller/api/y.py", "from controller.api.x import lonely\nlonely()\n")
    assert [name for name, _ in door_rules.uncalled_functions([lonely], door_rules.uses([lonely]))] == [
        "lonely"
    ]
    assert not list(door_rules.uncalled_functions([lonely], door_rules.uses([lonely, caller])))


def test_a_seeded_column_without_a_reader_is_found() -> None:
    model = Source.parse("controller/db/models/x.py", "class XRow(Row):\n    lonely: Mapped[int]\n")
    reader = Source.parse("controller/db/x.py", "print(row.lonely)\n")
    writer = Source.parse("controller/db/x.py", "XRow(lonely=1)\nrow.lonely = 2\n")
    assert [name for name, _ in door_rules.unread_columns([model], door_rules.uses([writer]))] == [
        "XRow.lonely"
    ]
    assert not list(door_rules.unread_columns([model], door_rules.uses([reader])))
