"""Calls that hang, fail and come late."""

import asyncio
import threading

import pytest

from device_agent.floor.errors import DeviceCallHangsError
from device_agent.targets.call import DeviceCall


def test_a_result_and_an_error_come_through() -> None:
    def fail() -> int:
        raise OSError("no cable")

    async def run() -> int:
        with pytest.raises(OSError, match="no cable"):
            await DeviceCall(fail, "f").result(10)
        return await DeviceCall(lambda: 7, "f").result(10)

    assert asyncio.run(run()) == 7


def test_a_call_that_hangs_is_an_error_with_its_stack_and_may_still_be_asked() -> None:
    release = threading.Event()

    def hang_here() -> str:
        release.wait(30)
        return "late"

    async def run() -> list[str]:
        call = DeviceCall(hang_here, "the report")
        late: list[str] = []
        with pytest.raises(DeviceCallHangsError, match="the report did not come back") as raised:
            await call.result(0.05)
        assert "hang_here" in raised.value.stack
        assert not call.done
        call.when_done(late.append)
        release.set()
        assert await call.result(10) == "late"
        await asyncio.sleep(0)
        return late

    assert asyncio.run(run()) == ["late"]


def test_a_time_out_of_the_library_itself_is_its_own_error() -> None:
    def fail() -> None:
        raise TimeoutError("the library's")

    async def run() -> None:
        with pytest.raises(TimeoutError, match="the library's"):
            await DeviceCall(fail, "f").result(10)

    asyncio.run(run())


def test_many_hanging_calls_do_not_keep_the_agent_from_ending() -> None:
    release = threading.Event()

    async def run() -> None:
        for _ in range(100):
            DeviceCall(lambda: release.wait(60), "f")
        assert await asyncio.to_thread(lambda: 1) == 1

    asyncio.run(run())
    release.set()
