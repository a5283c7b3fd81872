"""The application answers the routes of the contract and no others, with the bodies that stand there."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import Mount

from contract.routes import LOGIN_PATH, LOGOUT_PATH, OPENAPI_PATH, ROUTES, Route, Upload
from controller.api import agent_body
from tests.fakes.farm import Farm

pytestmark = pytest.mark.anyio

# For a browser, and the document of all the rest.
BESIDE_THE_CONTRACT = {
    ("GET", LOGIN_PATH),
    ("POST", LOGIN_PATH),
    ("POST", LOGOUT_PATH),
    ("GET", OPENAPI_PATH),
}


def _served(farm: Farm) -> dict[tuple[str, str], Any]:
    found = {}
    for route in _flat(farm.app.routes):
        for method in route.methods - {"HEAD"}:
            assert (method, route.path) not in found, f"{method} {route.path} is served twice"
            found[method, route.path] = route
    return found


def _flat(routes: Iterable[Any]) -> Iterator[Any]:
    for route in routes:
        if hasattr(route, "effective_candidates"):
            yield from _flat(route.effective_candidates())
        elif not isinstance(route, Mount):
            yield route


async def test_the_application_serves_the_routes_of_the_contract_and_no_others(farm: Farm) -> None:
    promised = {(route.method, route.template) for route in ROUTES}
    assert len(promised) == len(ROUTES)
    assert set(_served(farm)) - BESIDE_THE_CONTRACT == promised


@pytest.mark.parametrize("route", ROUTES, ids=str)
async def test_a_route_answers_and_takes_what_the_contract_says(farm: Farm, route: Route[Any]) -> None:
    served = _served(farm)[route.method, route.template]
    document = farm.app.openapi()["paths"][route.template][route.method.lower()]
    assert served.status_code == route.status
    if issubclass(route.answer, BaseModel):
        assert served.response_model is route.answer
    assert ("204" in document["responses"]) is route.may_be_empty
    query = {field["name"] for field in document.get("parameters", []) if field["in"] == "query"}
    assert query == (set(route.query.model_fields) if route.query is not None else set())
    path = {field["name"] for field in document.get("parameters", []) if field["in"] == "path"}
    assert path == route.parameters
    headers = {field["name"] for field in document.get("parameters", []) if field["in"] == "header"}
    assert (headers == {"Idempotency-Key"}) is route.takes_key
    assert _body(served) == (route.body if not isinstance(route.body, Upload) else None)


def _body(served: APIRoute) -> type[BaseModel] | None:
    """The model that the function reads, also where it reads it itself after the version."""
    if served.body_field is not None:
        wanted = served.body_field.field_info.annotation
        arguments = [each for each in getattr(wanted, "__args__", (wanted,)) if each is not type(None)]
        return arguments[0]  # type: ignore[no-any-return]  # the annotation is whatever the route wrote
    for dependency in served.dependant.dependencies:
        if getattr(dependency.call, "__qualname__", "").startswith(f"{agent_body.versioned.__name__}."):
            return next(
                cell.cell_contents
                for cell in dependency.call.__closure__ or ()  # type: ignore[union-attr]  # its name was found above
                if isinstance(cell.cell_contents, type)
            )
    return None
