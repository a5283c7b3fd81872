"""Which job gets which device: the same answer for every order of the same facts."""

from collections import Counter
from datetime import timedelta
from itertools import permutations

import pytest

from contract.rest import DeviceSelector
from contract.states import DeviceState, TargetKind
from controller.scheduling.placement import (
    DeviceFacts,
    JobFacts,
    Placement,
    Rules,
    choose,
    explain,
    misfits,
    nearest_misses,
    waiting_reason,
)
from tests.controller.farm import START

RULES = Rules(age_boost_s=600, seed="claim")


def job(job_id: str, *, priority: int = 5, age_s: float = 0.0, **fields: object) -> JobFacts:
    selector = DeviceSelector(**fields)
    return JobFacts(job_id, selector, "tiny", priority, START - timedelta(seconds=age_s))


def device(device_id: str, **fields: object) -> DeviceFacts:
    values: dict[str, object] = {
        "device_id": device_id,
        "state": DeviceState.READY,
        "kind": "host",
        "device_model": "box",
        "os_version": "6",
        "labels": (),
        "models": frozenset({"tiny"}),
        **fields,
    }
    return DeviceFacts(**values)


def chosen(jobs: list[JobFacts], devices: list[DeviceFacts], rules: Rules = RULES) -> Placement | None:
    """The choice, which must be the same for every order of jobs and devices."""
    offered = frozenset(entry.device_id for entry in devices)
    found = {
        choose(list(some_jobs), list(some_devices), offered, START, rules)
        for some_jobs in permutations(jobs)
        for some_devices in permutations(devices)
    }
    assert len(found) == 1
    return found.pop()


def test_the_higher_priority_goes_first() -> None:
    placement = chosen([job("a", priority=4), job("b", priority=6), job("c", priority=5)], [device("d")])
    assert placement == Placement("b", "d")


def test_of_equal_jobs_the_oldest_goes_first_then_the_lower_id() -> None:
    assert chosen([job("a"), job("b", age_s=5), job("c")], [device("d")]) == Placement("b", "d")
    assert chosen([job("c"), job("b")], [device("d")]) == Placement("b", "d")


def test_age_raises_priority_so_that_nothing_starves() -> None:
    young, old = job("young", priority=9), job("old", priority=0, age_s=9 * 600)
    assert chosen([young, old], [device("d")]) == Placement("old", "d")
    almost = job("old", priority=0, age_s=9 * 600 - 1)
    assert chosen([young, almost], [device("d")]) == Placement("young", "d")


def test_who_has_fewer_candidates_in_the_whole_farm_goes_first() -> None:
    picky = job("picky", device_id="d1")
    easy = job("easy", age_s=60)
    devices = [device("d1"), device("d2"), device("d3", state=DeviceState.LEASED)]
    assert chosen([picky, easy], devices) == Placement("picky", "d1")


def test_only_offered_devices_are_chosen_but_all_count_as_candidates() -> None:
    jobs = [job("a", device_id="d1"), job("b")]
    devices = [device("d1"), device("d2")]
    assert choose(jobs, devices, frozenset({"d2"}), START, RULES) == Placement("b", "d2")


def test_of_equal_devices_one_is_drawn_by_the_seed_and_none_wears_out_first() -> None:
    devices = [device(f"d{number}") for number in range(4)]
    ids = frozenset(entry.device_id for entry in devices)
    drawn = Counter(
        placement.device_id
        for seed in range(400)
        if (placement := choose([job("a")], devices, ids, START, Rules(600, str(seed))))
    )
    assert set(drawn) == ids
    assert min(drawn.values()) > 50
    assert chosen([job("a")], devices[:3]) == chosen([job("a")], devices[:3])


def test_nothing_is_placed_before_its_time_on_an_excluded_on_a_held_or_on_a_busy_device() -> None:
    later = JobFacts("a", DeviceSelector(), "tiny", 5, START, not_before=START + timedelta(seconds=1))
    elsewhere = JobFacts("a", DeviceSelector(), "tiny", 5, START, excluded=frozenset({"d"}))
    assert chosen([later], [device("d")]) is None
    assert chosen([elsewhere], [device("d")]) is None
    assert chosen([job("a")], [device("d", hold_until=START + timedelta(seconds=1))]) is None
    assert chosen([job("a")], [device("d", hold_until=START)]) == Placement("a", "d")
    for state in set(DeviceState) - {DeviceState.READY}:
        assert chosen([job("a")], [device("d", state=state)]) is None


@pytest.mark.parametrize(
    ("selector", "miss"),
    [
        (DeviceSelector(kind=TargetKind.IOS), "kind is 'host', not 'ios'"),
        (DeviceSelector(device_id="other"), "device_id is 'd', not 'other'"),
        (DeviceSelector(device_model="iPhone17,1"), "device_model is 'box', not 'iPhone17,1'"),
        (DeviceSelector(os_version="7"), "os_version is '6', not '7'"),
        (DeviceSelector(labels={"rack": "2"}), "label rack is '1', not '2'"),
        (DeviceSelector(labels={"lab": "x"}), "label lab is not set"),
    ],
)
def test_each_field_of_a_selector_must_match_and_a_miss_is_named(selector: DeviceSelector, miss: str) -> None:
    assert misfits(selector, "tiny", device("d", labels=(("rack", "1"),))) == (miss,)


def test_a_device_without_the_model_says_which_it_has() -> None:
    assert misfits(DeviceSelector(), "big", device("d")) == ("it has no model 'big' (it has: tiny)",)
    assert misfits(DeviceSelector(), "tiny", device("d")) == ()


def test_the_nearest_misses_come_first_and_name_what_is_wrong() -> None:
    selector = DeviceSelector(device_model="phone", os_version="7")
    far, near = device("far"), device("near", os_version="7")
    found = {nearest_misses(selector, "tiny", order, 1) for order in permutations([far, near])}
    assert found == {("near: device_model is 'box', not 'phone'",)}
    assert nearest_misses(selector, "tiny", []) == ()


def test_an_explanation_tells_what_never_fits_from_what_only_takes_time() -> None:
    held = device("held", hold_until=START + timedelta(seconds=7))
    hot = device("hot", state=DeviceState.COOLING, reasons=("thermal_abort",))
    other = device("other", kind="ios")
    explained = {entry.device_id: entry for entry in explain(job("a"), [other, hot, held], START)}
    assert explained["held"].misses == ()
    assert explained["held"].waits == ("the previous lease holder may still be using it for up to 7 s",)
    assert explained["hot"].waits == ("it is cooling (thermal_abort)",)
    assert explained["other"].misses == ("kind is 'ios', not 'host'",)


def test_one_line_says_what_a_job_waits_for() -> None:
    busy = device("d1", state=DeviceState.LEASED)
    assert waiting_reason(()) == "the farm has no devices yet"
    nowhere = waiting_reason(explain(job("a"), [device("d", kind="ios")], START))
    assert nowhere == "no device matches (1 checked)"
    assert waiting_reason(explain(job("a"), [busy, device("d2", state=DeviceState.LEASED)], START)) == (
        "d1: it is leased (and 1 more)"
    )
    free = waiting_reason(explain(job("a"), [busy, device("d2")], START))
    assert free == "d2 is free; waiting for its device agent to claim the job"
