"""Storing: each event once, in order, without a gap, whatever is sent again, early or late."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from contract.agent_api import Lease
from contract.artifacts import ArtifactKind, ArtifactUpload
from contract.events import Stream
from contract.failures import FailureReason
from controller.db.events import ArtifactRepository, EventRepository
from controller.db.models import BlobRow, EventBatchRow
from controller.db.session import read_only
from controller.errors import (
    ArtifactConflictError,
    AttemptNotFoundError,
    EventsGapError,
    FencedError,
    SeqConflictError,
    StreamSealedError,
)
from controller.ingest.artifacts import Artifact, store_artifact
from tests.controller.farm import Farm, control_lines, opening


@pytest.fixture
def farm() -> Farm:
    return Farm()


@pytest.fixture
def agent(farm: Farm) -> str:
    device_agent_id = farm.add_agent()
    farm.hello(device_agent_id, "d1")
    farm.add_job()
    return device_agent_id


@pytest.fixture
def lease(farm: Farm, agent: str) -> Lease:
    return farm.granted(agent, "d1")


def stored(farm: Farm, lease: Lease, stream: Stream = Stream.CONTROL, first_seq: int = 1) -> list[bytes]:
    """Lines as stored, whose numbers must be first_seq, first_seq + 1 and so on."""
    with read_only(farm.sessions) as session:
        found = list(EventRepository(session).lines(lease.attempt_id, stream, first_seq))
    assert [seq for seq, _ in found] == list(range(first_seq, first_seq + len(found)))
    return [line for _, line in found]


def test_events_are_stored_as_they_were_sent_and_acknowledged(farm: Farm, agent: str, lease: Lease) -> None:
    lines = control_lines(lease.attempt_id, 5)
    assert farm.upload(agent, lease, lines[:2]).next_seq == 3
    answer = farm.upload(agent, lease, lines[2:], first_seq=3)
    assert (answer.next_seq, answer.directive) == (6, "continue")
    assert stored(farm, lease) == lines
    assert stored(farm, lease, first_seq=4) == lines[3:]
    with read_only(farm.sessions) as session:
        assert [event.seq for event in EventRepository(session).events(lease.attempt_id, Stream.CONTROL)] == [
            *range(1, 6)
        ]


def test_the_same_batch_again_is_acknowledged_and_stored_once(farm: Farm, agent: str, lease: Lease) -> None:
    lines = control_lines(lease.attempt_id, 3)
    assert farm.upload(agent, lease, lines) == farm.upload(agent, lease, lines)
    with read_only(farm.sessions) as session:
        assert len(session.scalars(select(EventBatchRow)).all()) == 1


def test_only_the_part_that_is_new_is_stored_of_an_overlap(farm: Farm, agent: str, lease: Lease) -> None:
    lines = control_lines(lease.attempt_id, 9)
    farm.upload(agent, lease, lines[:3])
    farm.upload(agent, lease, lines[3:5], first_seq=4)
    assert farm.upload(agent, lease, lines[1:], first_seq=2).next_seq == 10
    assert stored(farm, lease) == lines


def test_a_gap_is_refused_with_what_is_needed(farm: Farm, agent: str, lease: Lease) -> None:
    lines = control_lines(lease.attempt_id, 5)
    farm.upload(agent, lease, lines[:2])
    with pytest.raises(EventsGapError) as gap:
        farm.upload(agent, lease, lines[3:], first_seq=4)
    assert (gap.value.stream, gap.value.next_seq) == ("control", 3)
    assert stored(farm, lease) == lines[:2]


def test_another_content_under_a_stored_number_is_a_conflict_and_stores_nothing(
    farm: Farm, agent: str, lease: Lease
) -> None:
    lines = control_lines(lease.attempt_id, 3)
    farm.upload(agent, lease, lines)
    other = [*lines[:2], *control_lines(lease.attempt_id, 2, first_seq=3, mark=9)]
    with pytest.raises(SeqConflictError) as conflict:
        farm.upload(agent, lease, other)
    assert conflict.value.seq == 3
    assert stored(farm, lease) == lines


def test_many_small_batches_are_read_in_order_page_by_page(farm: Farm, agent: str, lease: Lease) -> None:
    lines = control_lines(lease.attempt_id, 150)
    for seq, line in enumerate(lines, 1):
        farm.upload(agent, lease, [line], first_seq=seq)
    assert stored(farm, lease) == lines
    assert stored(farm, lease, first_seq=65) == lines[64:]
    with read_only(farm.sessions) as session:
        half_read = EventRepository(session).lines(lease.attempt_id, Stream.CONTROL)
        assert next(half_read) == (1, lines[0])


def test_streams_count_for_themselves(farm: Farm, agent: str, lease: Lease) -> None:
    farm.upload(agent, lease, control_lines(lease.attempt_id, 4))
    line = opening(lease.attempt_id, Stream.DEVICE_AGENT)
    assert farm.upload(agent, lease, [line], stream=Stream.DEVICE_AGENT).next_seq == 2
    assert stored(farm, lease, Stream.DEVICE_AGENT) == [line]


def test_another_agent_or_fence_stores_nothing(farm: Farm, agent: str, lease: Lease) -> None:
    lines = control_lines(lease.attempt_id, 1)
    with pytest.raises(AttemptNotFoundError):
        farm.upload(farm.add_agent(), lease, lines)
    with pytest.raises(FencedError):
        farm.upload(agent, lease, lines, fence=lease.fence + 1)
    assert stored(farm, lease) == []


def test_after_an_accepted_result_nothing_is_added_but_repetitions_are_acknowledged(
    farm: Farm, agent: str, lease: Lease
) -> None:
    lines = control_lines(lease.attempt_id, 3)
    farm.upload(agent, lease, lines)
    farm.finish(agent, lease, last_seq={Stream.CONTROL: 3})
    assert farm.upload(agent, lease, lines).next_seq == 4
    with pytest.raises(StreamSealedError):
        farm.upload(agent, lease, control_lines(lease.attempt_id, 1, first_seq=4), first_seq=4)


def test_a_lost_or_orphaned_attempt_still_takes_its_own_events(farm: Farm, agent: str, lease: Lease) -> None:
    lines = control_lines(lease.attempt_id, 4)
    farm.pass_time(61)
    farm.sweep()
    assert farm.upload(agent, lease, lines[:2]).directive == "continue"
    farm.finish(agent, lease, "errored", reason=FailureReason.AGENT_RESTARTED)
    assert farm.attempt(lease).state == "orphaned"
    assert farm.upload(agent, lease, lines[2:], first_seq=3).directive == "cancel"
    assert stored(farm, lease) == lines


SHARED = Farm()


@settings(max_examples=25)
@given(st.data())
def test_whatever_is_sent_in_whatever_order_what_is_stored_is_1_to_n(data: st.DataObject) -> None:
    agent, device_id = SHARED.add_agent(), f"d{SHARED.number()}"
    SHARED.hello(agent, device_id)
    SHARED.add_job()
    lease = SHARED.granted(agent, device_id)
    lines = control_lines(lease.attempt_id, 12)
    next_seq = 1
    for first in data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=6)):
        last = data.draw(st.integers(first, 12))
        if first > next_seq:
            with pytest.raises(EventsGapError) as gap:
                SHARED.upload(agent, lease, lines[first - 1 : last], first_seq=first)
            assert gap.value.next_seq == next_seq
        else:
            answer = SHARED.upload(agent, lease, lines[first - 1 : last], first_seq=first)
            assert answer.next_seq == max(next_seq, last + 1)
            next_seq = answer.next_seq
    assert stored(SHARED, lease) == lines[: next_seq - 1]


# --- artifacts


def keep(farm: Farm, agent: str, lease: Lease, name: str, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    said = ArtifactUpload(fence=lease.fence, kind=ArtifactKind.CRASH_REPORT, sha256=digest)
    with farm.unit_of_work() as work:
        return store_artifact(work, agent, Artifact(lease.attempt_id, name, said, content)).sha256


def test_an_artifact_is_kept_by_name_and_its_content_once(farm: Farm, agent: str, lease: Lease) -> None:
    content = b"crash report " * 100
    assert keep(farm, agent, lease, "crash", content) == hashlib.sha256(content).hexdigest()
    keep(farm, agent, lease, "crash", content)
    keep(farm, agent, lease, "again", content)
    with read_only(farm.sessions) as session:
        assert len(session.scalars(select(BlobRow)).all()) == 1
        kept = ArtifactRepository(session).find(lease.attempt_id, "again")
        assert kept is not None
        assert ArtifactRepository(session).content(kept) == content


def test_an_empty_artifact_is_kept(farm: Farm, agent: str, lease: Lease) -> None:
    keep(farm, agent, lease, "empty", b"")
    with read_only(farm.sessions) as session:
        kept = ArtifactRepository(session).find(lease.attempt_id, "empty")
        assert kept is not None
        assert ArtifactRepository(session).content(kept) == b""


def test_another_content_under_the_same_name_is_refused(farm: Farm, agent: str, lease: Lease) -> None:
    keep(farm, agent, lease, "crash", b"one")
    with pytest.raises(ArtifactConflictError):
        keep(farm, agent, lease, "crash", b"two")


def test_a_result_with_its_artifacts_is_accepted(farm: Farm, agent: str, lease: Lease) -> None:
    digest = keep(farm, agent, lease, "crash", b"one")
    farm.upload(agent, lease, control_lines(lease.attempt_id, 1))
    artifacts = [{"name": "crash", "sha256": digest, "size_bytes": 3}]
    assert farm.finish(agent, lease, artifacts=artifacts).state == "succeeded"
