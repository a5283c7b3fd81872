"""The same protocol on PostgreSQL: migrations, row locks and skipped locks instead of one writer."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from contract.agent_api import ClaimRequest, Lease
from contract.rest import DeviceSelector
from contract.states import JobOutcome
from controller.db.migrate import require_ready, upgrade
from controller.db.models import Row
from controller.db.session import open_sessions, unit_of_work
from controller.db.unit_of_work import UnitOfWork
from controller.errors import StoreBusyError
from controller.protocol.leases import claim
from tests.controller.farm import Farm, control_lines, fixed_id
from tests.controller.postgresql import Server, find_binaries, running_server
from tests.controller.protocol.simulation import Simulation

BINARIES = find_binaries()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BINARIES is None, reason="PostgreSQL is not installed here"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    assert BINARIES is not None
    with running_server(BINARIES) as running:
        yield running


@pytest.fixture
def farm(server: Server) -> Iterator[Farm]:
    made = Farm(server.fresh_database("farm"))
    yield made
    made.sessions.close()


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run it `count` times at once; the first error of any is raised."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def one(number: int) -> None:
        try:
            barrier.wait(10)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]


def ask(farm: Farm, agent: str, device_ids: list[str], number: int) -> Lease | None:
    """Claim without waiting, as the route does: two transactions."""
    request = ClaimRequest(claim_id=fixed_id("clm", number), devices=device_ids, wait_s=0)
    with unit_of_work(farm.sessions) as session:
        lease = claim(UnitOfWork(session, farm.now, farm.times, farm.chance), agent, request)
    if lease is not None:
        return lease
    return farm.close_claim(agent, request.claim_id)


def test_three_replicas_that_start_at_once_make_the_tables_once(server: Server) -> None:
    url = server.fresh_database("migrated")
    in_threads(3, lambda _: upgrade(url))
    sessions = open_sessions(url)
    require_ready(sessions)
    with sessions.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Row.metadata) == []
    sessions.close()


def test_claims_at_once_grant_each_job_and_each_device_once(farm: Farm) -> None:
    agents = [farm.add_agent() for _ in range(6)]
    devices = {agent: [f"d{number}-{i}" for i in range(6)] for number, agent in enumerate(agents)}
    for agent in agents:
        farm.hello(agent, *devices[agent])
    for _ in range(24):
        farm.add_job()
    granted: list[Lease] = []

    def work(number: int) -> None:
        for attempt in range(6):
            lease = ask(farm, agents[number], devices[agents[number]], 1 + number * 100 + attempt)
            if lease is not None:
                granted.append(lease)

    in_threads(6, work)
    assert len(granted) == 24
    assert set(Counter(lease.spec.job_id for lease in granted).values()) == {1}
    assert set(Counter(lease.device_id for lease in granted).values()) == {1}


def test_copies_of_one_claim_at_once_get_the_same_answer(farm: Farm) -> None:
    agent = farm.add_agent()
    farm.hello(agent, "d1", "d2", "d3")
    for _ in range(3):
        farm.add_job()
    answers: list[Lease | None] = []
    in_threads(4, lambda _: answers.append(ask(farm, agent, ["d1", "d2", "d3"], 7)))
    assert len({lease.lease_id if lease else None for lease in answers}) == 1


def test_two_jobs_of_a_run_that_end_at_once_finish_the_run(farm: Farm) -> None:
    agent = farm.add_agent()
    farm.hello(agent, "d1", "d2")
    for _ in range(5):
        run_id, job_ids = farm.add_run(DeviceSelector(), DeviceSelector())
        farm.hello(agent, "d1", "d2")
        leases = [farm.granted(agent, "d1", "d2"), farm.granted(agent, "d1", "d2")]
        for lease in leases:
            farm.upload(agent, lease, control_lines(lease.attempt_id, 1))

        def finish(number: int, leases: list[Lease] = leases) -> None:
            # A deadlock is answered with "try again", as the agent would.
            for _ in range(5):
                try:
                    farm.finish(agent, leases[number])
                except StoreBusyError:
                    continue
                return

        in_threads(2, finish)
        assert {farm.job(job_id).outcome for job_id in job_ids} == {JobOutcome.SUCCEEDED}
        assert farm.run(run_id).state == "finishing"


@pytest.mark.parametrize("seed", range(2))
def test_the_invariants_hold_here_too(server: Server, seed: int) -> None:
    simulation = Simulation(seed, database_url=server.fresh_database("simulated"))
    try:
        simulation.run()
    finally:
        simulation.world.farm.sessions.close()
