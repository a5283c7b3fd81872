"""Claims that wait: one look for all of them, taken when something changed, and now and then all the same."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from controller.api.waiting_claims import ClosingClaims, WaitingClaims
from controller.errors import StoreBusyError
from controller.protocol.leases import Outlook, WaitingClaim

pytestmark = pytest.mark.anyio


class Farm:
    """What a look finds; `asked` has the claims of each look."""

    def __init__(self) -> None:
        self.outlook = Outlook(frozenset())
        self.error: Exception | None = None
        self.asked: list[list[str]] = []

    def look(self, claims: Sequence[WaitingClaim]) -> Outlook:
        self.asked.append([claim.claim_id for claim in claims])
        if self.error is not None:
            raise self.error
        return self.outlook


def now() -> datetime:
    return datetime.now(UTC)


def claim(claim_id: str) -> WaitingClaim:
    return WaitingClaim(claim_id, "agt", (f"device-of-{claim_id}",))


def begin(waiting: WaitingClaims, *claim_ids: str) -> list["asyncio.Task[bool]"]:
    return [asyncio.create_task(waiting.opportunity(claim(each), 60)) for each in claim_ids]


async def until_asked(farm: Farm, times: int) -> None:
    async with asyncio.timeout(20):
        while len(farm.asked) < times:
            await asyncio.sleep(0.005)


async def test_a_signal_is_one_look_for_everyone_and_wakes_only_those_that_may_get_something() -> None:
    farm = Farm()
    waiting = WaitingClaims(farm.look, now, look_every_s=60)
    first, second = begin(waiting, "a", "b")
    await until_asked(farm, 1)
    assert farm.asked == [["a", "b"]]
    farm.outlook = Outlook(frozenset(), frozenset({"b"}))
    await asyncio.to_thread(waiting.signal)
    async with asyncio.timeout(20):
        assert await second
    assert farm.asked == [["a", "b"], ["a", "b"]]
    assert not first.done()
    waiting.close()
    async with asyncio.timeout(20):
        assert not await first


async def test_a_new_claim_is_looked_at_alone() -> None:
    farm = Farm()
    waiting = WaitingClaims(farm.look, now, look_every_s=60)
    begin(waiting, "a")
    await until_asked(farm, 1)
    begin(waiting, "b")
    await until_asked(farm, 2)
    assert farm.asked == [["a"], ["b"]]
    assert waiting.looks == {"claim": 2}
    waiting.close()


async def test_an_answered_claim_and_one_whose_time_is_over_wait_no_longer() -> None:
    farm = Farm()
    waiting = WaitingClaims(farm.look, now, look_every_s=60)
    assert not await waiting.opportunity(claim("a"), 0)
    farm.outlook = Outlook(frozenset({"b"}))
    async with asyncio.timeout(20):
        assert not await waiting.opportunity(claim("b"), 60)
    assert farm.asked == [["a"], ["b"]]


async def test_a_lost_signal_and_a_moment_that_was_told_are_looked_for_in_time() -> None:
    farm = Farm()
    waiting = WaitingClaims(farm.look, now, look_every_s=0.05)
    (first,) = begin(waiting, "a")
    await until_asked(farm, 2)
    farm.outlook = Outlook(frozenset(), frozenset({"a"}))
    async with asyncio.timeout(20):
        assert await first
    assert waiting.looks["time"] >= 1
    farm.outlook = Outlook(frozenset(), changes_at=now() + timedelta(seconds=0.1))
    patient = WaitingClaims(farm.look, now, look_every_s=60)
    begin(patient, "b")
    await until_asked(farm, len(farm.asked) + 1)
    before = len(farm.asked)
    await until_asked(farm, before + 1)
    assert patient.looks["time"] >= 1
    patient.close()


async def test_a_look_that_fails_is_an_error_for_the_new_claim_and_a_delay_for_the_others() -> None:
    farm = Farm()
    waiting = WaitingClaims(farm.look, now, look_every_s=60)
    (first,) = begin(waiting, "a")
    await until_asked(farm, 1)
    farm.error = StoreBusyError()
    with pytest.raises(StoreBusyError):
        await waiting.opportunity(claim("b"), 60)
    assert not first.done()
    farm.error, farm.outlook = None, Outlook(frozenset(), frozenset({"a"}))
    waiting.signal()
    async with asyncio.timeout(20):
        assert await first


async def test_claims_that_end_in_a_moment_are_remembered_together() -> None:
    closed: list[list[str]] = []

    def close(claims: Sequence[WaitingClaim]) -> frozenset[str]:
        closed.append([claim.claim_id for claim in claims])
        return frozenset({"b"})

    closing = ClosingClaims(close)
    async with asyncio.timeout(20):
        ended = await asyncio.gather(*(closing.end(claim(each)) for each in ("a", "b", "c")))
    assert ended == [True, False, True]
    assert closed == [["a", "b", "c"]]
