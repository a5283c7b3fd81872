"""Many claims at once on one database file: each job is granted once, each device has one lease."""

import threading
from collections import Counter
from pathlib import Path

from contract.agent_api import ClaimRequest, Lease
from contract.rest import DeviceSelector
from controller.db.session import unit_of_work
from controller.db.unit_of_work import UnitOfWork
from controller.protocol.leases import claim
from tests.controller.farm import Farm, fixed_id

THREADS = 8
JOBS = 40


def test_eight_threads_claiming_from_one_file_grant_each_job_once(tmp_path: Path) -> None:
    farm = Farm(f"sqlite:///{tmp_path / 'farm.sqlite'}")
    agents = [farm.add_agent() for _ in range(THREADS)]
    devices = {agent: [f"d{number}-{i}" for i in range(8)] for number, agent in enumerate(agents)}
    for agent in agents:
        farm.hello(agent, *devices[agent])
    for _ in range(JOBS):
        farm.add_run(DeviceSelector())
    barrier = threading.Barrier(THREADS)
    granted: list[Lease] = []
    failed: list[BaseException] = []

    def work(number: int, agent: str) -> None:
        try:
            barrier.wait(10)
            for attempt in range(JOBS):
                if (lease := ask(farm, agent, devices[agent], number * 1000 + attempt)) is None:
                    return
                granted.append(lease)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(agents)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed
    assert not any(thread.is_alive() for thread in threads)
    assert len(granted) == JOBS
    assert set(Counter(lease.spec.job_id for lease in granted).values()) == {1}
    assert set(Counter(lease.device_id for lease in granted).values()) == {1}


def ask(farm: Farm, agent: str, device_ids: list[str], number: int) -> Lease | None:
    """A claim in a transaction of its own; the farm's clock stands still."""
    request = ClaimRequest(claim_id=fixed_id("clm", number + 1), devices=device_ids, wait_s=0)
    with unit_of_work(farm.sessions) as session:
        return claim(UnitOfWork(session, farm.now, farm.times, farm.chance), agent, request)


def test_two_copies_of_one_claim_at_once_get_one_lease(tmp_path: Path) -> None:
    farm = Farm(f"sqlite:///{tmp_path / 'farm.sqlite'}")
    agent = farm.add_agent()
    farm.hello(agent, "d1", "d2", "d3")
    for _ in range(3):
        farm.add_job()
    leases: list[Lease | None] = []
    barrier = threading.Barrier(4)

    def copy() -> None:
        barrier.wait(10)
        lease = ask(farm, agent, ["d1", "d2", "d3"], 7)
        if lease is None:
            lease = farm.close_claim(agent, fixed_id("clm", 8))
        leases.append(lease)

    threads = [threading.Thread(target=copy) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(leases) == 4
    assert len({lease.lease_id if lease else None for lease in leases} - {None}) == 1
    assert None not in leases
