"""What the repositories promise beyond a look-up: pages, the outbox, samples, tokens."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from contract.rest import DeviceSelector
from controller.db.attempts import AttemptRepository, LeaseRepository
from controller.db.devices import DeviceRepository
from controller.db.events import SampleRepository
from controller.db.models import SampleRow, TokenKind, TokenRow, TokenScope
from controller.db.outbox import Outbox, Topic
from controller.db.runs import JobRepository, RunRepository
from controller.db.session import read_only
from controller.db.tokens import TokenGrant, TokenRepository, new_token_text
from controller.errors import AttemptNotFoundError, DeviceNotFoundError, JobNotFoundError, RunNotFoundError
from tests.controller.farm import Farm, fixed_id


@pytest.fixture
def farm() -> Farm:
    return Farm()


def test_what_is_not_there_is_a_typed_error_that_names_it(farm: Farm) -> None:
    with read_only(farm.sessions) as session:
        for look_up, error in (
            (RunRepository(session).get, RunNotFoundError),
            (JobRepository(session).get, JobNotFoundError),
            (AttemptRepository(session).get, AttemptNotFoundError),
            (DeviceRepository(session).get, DeviceNotFoundError),
        ):
            with pytest.raises(error, match="'nothing'"):
                look_up("nothing")


def test_pages_of_runs_are_newest_first_and_meet_without_overlap(farm: Farm) -> None:
    run_ids = [farm.add_run()[0] for _ in range(5)]
    with read_only(farm.sessions) as session:
        first = [run.run_id for run in RunRepository(session).page(2)]
        second = [run.run_id for run in RunRepository(session).page(9, before_run_id=first[-1])]
    assert first + second == run_ids[::-1]


def test_jobs_come_in_the_order_of_the_matrix(farm: Farm) -> None:
    run_id, job_ids = farm.add_run(DeviceSelector(), DeviceSelector(), DeviceSelector())
    with read_only(farm.sessions) as session:
        assert [job.job_id for job in JobRepository(session).of_runs([run_id])] == job_ids


def test_next_seqs_are_listed_per_attempt_and_stream(farm: Farm) -> None:
    agent = farm.add_agent()
    farm.hello(agent, "d1")
    farm.add_job()
    lease = farm.granted(agent, "d1")
    with read_only(farm.sessions) as session:
        found = AttemptRepository(session).next_seqs([lease.attempt_id, fixed_id("att", 9)])
        assert found == {lease.attempt_id: {}, fixed_id("att", 9): {}}
    farm.succeed(agent, lease)
    with read_only(farm.sessions) as session:
        assert AttemptRepository(session).next_seqs([lease.attempt_id]) == {lease.attempt_id: {"control": 2}}
        assert LeaseRepository(session).live_by_device() == {}


def test_the_outbox_gives_the_oldest_first_until_they_are_marked(farm: Farm) -> None:
    with farm.unit_of_work() as work:
        for number in range(3):
            work.announce(Topic.RUN_CHANGED, {"run_id": str(number)})
    with farm.unit_of_work() as work:
        outbox = Outbox(work.session)
        first = outbox.unpublished(limit=2)
        assert [row.payload["run_id"] for row in first] == ["0", "1"]
        outbox.mark_published([row.outbox_id for row in first], work.now)
    with farm.unit_of_work() as work:
        assert [row.payload["run_id"] for row in Outbox(work.session).unpublished()] == ["2"]


def test_samples_are_replaced_as_a_whole_and_a_summary_is_kept_once(farm: Farm) -> None:
    agent = farm.add_agent()
    farm.hello(agent, "d1")
    farm.add_job()
    attempt_id = farm.granted(agent, "d1").attempt_id

    def sample(value: float) -> SampleRow:
        row = SampleRow(attempt_id=attempt_id, trial=1, arm="a", pair=1, metric="wall_s", value=value)
        row.agent, row.call = None, None
        return row

    for values in ([1.0, 2.0], [3.0]):
        with farm.unit_of_work() as work:
            samples = SampleRepository(work.session)
            samples.replace(attempt_id, [sample(value) for value in values])
            samples.keep_summary(attempt_id, {"values": values}, work.now)
    with read_only(farm.sessions) as session:
        assert [row.value for row in SampleRepository(session).of([attempt_id])] == [3.0]
        assert SampleRepository(session).summary(attempt_id) == {"values": [3.0]}
        assert SampleRepository(session).summary("other") is None


def test_a_token_is_good_until_it_expires_or_is_revoked(farm: Farm) -> None:
    with farm.unit_of_work() as work:
        tokens = TokenRepository(work.session)
        short = tokens.issue(
            TokenGrant(TokenKind.USER, "u", TokenScope.VIEWER, expires_at=work.now + timedelta(seconds=5)),
            work.now,
        )
        long = tokens.issue(TokenGrant(TokenKind.USER, "u", TokenScope.ADMIN), work.now)
        assert tokens.find(short, work.now) is not None
        assert tokens.find(short, work.now + timedelta(seconds=5)) is None
        assert tokens.find("dyn_" + "x" * 43, work.now) is None
        row = tokens.find(long, work.now)
        assert row is not None
        row.revoked_at = work.now
        work.session.flush()
        assert tokens.find(long, work.now) is None


def test_a_token_is_long_random_and_kept_only_as_a_digest(farm: Farm) -> None:
    texts = {new_token_text() for _ in range(50)}
    assert len(texts) == 50
    assert all(text.startswith("dyn_") and len(text) == 47 for text in texts)
    with farm.unit_of_work() as work:
        text = TokenRepository(work.session).issue(TokenGrant(TokenKind.USER, "u"), work.now)
        kept = work.session.scalars(select(TokenRow)).all()
    assert text not in repr([vars(row) for row in kept])
