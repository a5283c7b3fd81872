"""Enrolment: a token that works once becomes an agent that keeps its name, id and devices."""

from datetime import timedelta

import pytest

from contract.agent_api import EnrollAnswer, EnrollRequest
from controller.db.models import TokenKind, TokenScope
from controller.db.tokens import TokenGrant, TokenRepository, token_digest
from controller.errors import AgentOutdatedError, NotAuthenticatedError
from controller.protocol.enrolment import enroll
from tests.controller.farm import Farm


@pytest.fixture
def farm() -> Farm:
    return Farm()


def issue(farm: Farm, grant: TokenGrant) -> str:
    with farm.unit_of_work() as work:
        return TokenRepository(work.session).issue(grant, farm.now)


def enrolment(farm: Farm, valid_s: float = 600) -> str:
    expires_at = farm.now + timedelta(seconds=valid_s)
    return issue(farm, TokenGrant(TokenKind.ENROLMENT, "enrolment", expires_at=expires_at))


def exchange(farm: Farm, token: str, name: str = "lab-1", version: str = "1.0") -> EnrollAnswer:
    with farm.unit_of_work() as work:
        request = EnrollRequest(agent_name=name, contract_version=version)
        return enroll(work, token_digest(token), request)


def is_good(farm: Farm, token: str) -> bool:
    with farm.unit_of_work() as work:
        return TokenRepository(work.session).find(token, farm.now) is not None


def test_the_token_of_an_agent_is_its_own_and_only_its_digest_is_kept(farm: Farm) -> None:
    answer = exchange(farm, enrolment(farm))
    with farm.unit_of_work() as work:
        row = TokenRepository(work.session).find(answer.token, farm.now)
        assert row is not None
        assert (row.kind, row.device_agent_id, row.scope) == (TokenKind.AGENT, answer.device_agent_id, None)
        assert answer.token not in str(vars(row))


def test_an_enrolment_token_works_once(farm: Farm) -> None:
    token = enrolment(farm)
    exchange(farm, token)
    with pytest.raises(NotAuthenticatedError):
        exchange(farm, token, name="lab-2")


def test_an_expired_enrolment_token_does_not_work(farm: Farm) -> None:
    token = enrolment(farm, valid_s=10)
    farm.pass_time(10)
    with pytest.raises(NotAuthenticatedError):
        exchange(farm, token)


def test_no_other_token_enrols(farm: Farm) -> None:
    user = issue(farm, TokenGrant(TokenKind.USER, "root", TokenScope.ADMIN))
    for token in (user, "dyn_unknown"):
        with pytest.raises(NotAuthenticatedError):
            exchange(farm, token)


def test_an_agent_of_another_contract_is_outdated_and_its_token_stays_good(farm: Farm) -> None:
    token = enrolment(farm)
    with pytest.raises(AgentOutdatedError):
        exchange(farm, token, version="2.0")
    assert is_good(farm, token)


def test_an_agent_that_enrols_again_keeps_id_and_devices_and_its_old_token_ends(farm: Farm) -> None:
    first = exchange(farm, enrolment(farm))
    farm.hello(first.device_agent_id, "d1")
    second = exchange(farm, enrolment(farm))
    assert second.device_agent_id == first.device_agent_id
    assert is_good(farm, second.token)
    assert not is_good(farm, first.token)
    assert farm.device("d1").device_agent_id == first.device_agent_id


def test_another_name_is_another_agent(farm: Farm) -> None:
    one, two = exchange(farm, enrolment(farm)), exchange(farm, enrolment(farm), name="lab-2")
    assert one.device_agent_id != two.device_agent_id
    assert is_good(farm, one.token)
