"""The live view reads each stored event once, however often somebody looks."""

import pytest

from contract.events import Event, Stream
from controller.runs.live import EventCache
from tests.fakes.farm import Farm
from tests.fakes.session import Lab, told

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lab(farm: Farm) -> Lab:
    return await Lab.of(farm)


def _cached(lab: Lab, cache: EventCache, attempt_id: str) -> dict[Stream, list[Event]]:
    with lab.farm.context.view() as work:
        return cache.events(work.session, attempt_id)


async def test_a_later_look_has_the_events_that_came_in_between(lab: Lab) -> None:
    await lab.submit()
    lease = await lab.claim()
    events = told(lease).events[Stream.CONTROL]
    await lab.agent.renew(lease, "running")
    cache = EventCache()
    for start, end in ((0, 10), (10, 11), (11, len(events))):
        await lab.agent.upload(lease, Stream.CONTROL, events[start:end])
        assert _cached(lab, cache, lease.attempt_id)[Stream.CONTROL] == events[:end]
    assert _cached(lab, cache, lease.attempt_id)[Stream.CONTROL] == events


async def test_whoever_changes_what_it_got_changes_nothing_for_the_next(lab: Lab) -> None:
    await lab.submit()
    lease = await lab.claim()
    await lab.carry_out(lease)
    cache = EventCache()
    first = _cached(lab, cache, lease.attempt_id)
    count = len(first[Stream.CONTROL])
    first[Stream.CONTROL].clear()
    assert len(_cached(lab, cache, lease.attempt_id)[Stream.CONTROL]) == count


async def test_only_the_attempts_watched_last_are_kept(lab: Lab) -> None:
    cache = EventCache(capacity=1)
    leases = []
    for _ in range(2):
        await lab.submit()
        leases.append(await lab.claim())
        await lab.carry_out(leases[-1])
    for lease in (*leases, leases[0]):
        assert _cached(lab, cache, lease.attempt_id)[Stream.CONTROL]
    assert len(cache) == 1


async def test_the_trace_is_not_read(lab: Lab) -> None:
    await lab.submit()
    lease = await lab.claim()
    await lab.carry_out(lease)
    assert Stream.LOG not in _cached(lab, EventCache(), lease.attempt_id)
