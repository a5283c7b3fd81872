"""A path is made of a template and of what a person typed, which stays one segment of it."""

import pytest

from contract.routes import GET_DEVICE, HEALTH, PUT_ARTIFACT, ROUTES


def test_parameters_are_filled_in_by_name() -> None:
    path = PUT_ARTIFACT.path(attempt_id="att_1", name="crash.ips")
    assert path == "/device-agent/attempts/att_1/artifacts/crash.ips"
    assert PUT_ARTIFACT.matches(path)
    assert not PUT_ARTIFACT.matches(path + "/more")


@pytest.mark.parametrize(
    ("typed", "segment"),
    [("../runs?x=1#y", "..%2Fruns%3Fx%3D1%23y"), ("..", "%2E%2E"), ("a b:c", "a%20b%3Ac"), ("ü", "%C3%BC")],
)
def test_what_a_person_typed_stays_one_segment(typed: str, segment: str) -> None:
    assert GET_DEVICE.path(device_id=typed) == f"/v1/devices/{segment}"


def test_an_empty_parameter_would_be_another_route_and_is_refused() -> None:
    with pytest.raises(ValueError, match="device_id is empty"):
        GET_DEVICE.path(device_id="")


@pytest.mark.parametrize("names", [{}, {"device": "x"}, {"device_id": "x", "more": "y"}])
def test_a_path_takes_exactly_its_parameters(names: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="takes"):
        GET_DEVICE.path(**names)
    assert HEALTH.path() == "/health"


def test_every_route_that_only_reads_may_be_asked_again() -> None:
    assert all(route.repeatable for route in ROUTES if route.method == "GET")
