"""A viewer of the dashboard without a browser: asks for pages and carries out callbacks as dash does."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from contract.headers import SESSION_COOKIE
from dashboard.app import mount
from tests.fakes.dashboard_rest import SESSION

_UPDATE = "/dashboard/_dash-update-component"


@dataclass
class DashboardViewer:
    """One viewer with a browser's cookies."""

    http: TestClient

    def layout_of(self, address: str) -> dict[str, Any]:
        """The skeleton that dash's router puts at an address such as `/dashboard/runs?page_token=x`."""
        path, _, query = address.partition("?")
        inputs = [
            {"id": "_pages_location", "property": "pathname", "value": path},
            {"id": "_pages_location", "property": "search", "value": f"?{query}" if query else ""},
        ]
        answer = self.call(".._pages_content.children..._pages_store.data..", inputs, [])
        return {**answer["_pages_content"]["children"], "title": answer["_pages_store"]["data"]["title"]}

    def fill(self, address: str, output: str) -> dict[str, Any]:
        """Open the address and carry out once the callback of `output` (`id.property`): outputs by id."""
        callback = next(found for found in self.callbacks() if output in _split(found["output"]))
        skeleton = self.layout_of(address)
        return self.again(callback, skeleton)

    def click(self, address: str, button: str) -> dict[str, Any]:
        """Open the address and click the button: outputs by id, without what dash adds to tell them apart."""
        callback = next(one for one in self.callbacks() if button in (given["id"] for given in one["inputs"]))
        answer = self.again(callback, self.layout_of(address), **{button.replace("-", "_"): 1})
        return {name.partition("@")[0]: value for name, value in answer.items()}

    def again(self, callback: dict[str, Any], skeleton: dict[str, Any], **state: Any) -> dict[str, Any]:
        """Carry out the callback with the values of the skeleton, some replaced: `run_memory={...}`."""
        given = {name.replace("_", "-"): value for name, value in state.items()}
        wanted = [
            [
                {**one, "value": given.get(one["id"], _prop(skeleton, one["id"], one["property"]))}
                for one in ones
            ]
            for ones in (callback["inputs"], callback["state"])
        ]
        return self.call(callback["output"], *wanted)

    def callbacks(self) -> list[dict[str, Any]]:
        """What dash says of its callbacks."""
        found: list[dict[str, Any]] = self.http.get("/dashboard/_dash-dependencies").json()
        return found

    def call(self, output: str, inputs: list[dict[str, Any]], state: list[dict[str, Any]]) -> dict[str, Any]:
        """One callback: outputs by id and property."""
        outputs = [dict(zip(("id", "property"), one.rsplit(".", 1), strict=True)) for one in _split(output)]
        body = {
            "output": output,
            "outputs": outputs if output.startswith("..") else outputs[0],
            "inputs": inputs,
            "state": state,
            "changedPropIds": [f"{one['id']}.{one['property']}" for one in inputs],
        }
        answer = self.http.post(_UPDATE, json=body)
        assert answer.status_code == HTTPStatus.OK, answer.text
        response: dict[str, Any] = answer.json()["response"]
        return response


@contextmanager
def viewing(base_url: str, session: str | None = SESSION) -> Iterator[DashboardViewer]:
    """A viewer of a dashboard that reads the REST surface at base_url; session None: not signed in."""
    app = FastAPI()
    mount(app, base_url)
    cookies = {SESSION_COOKIE: session} if session else {}
    # One event loop for all requests, as a server has.
    with TestClient(app, cookies=cookies) as http:
        yield DashboardViewer(http)


def text_of(component: object) -> str:
    """All text of a component as dash sends it, figures' titles included, with plain spaces."""
    return re.sub(r"(\s|<br>)+", " ", " ".join(_texts(component))).strip()


def _texts(component: object) -> Iterator[str]:
    if isinstance(component, str):
        yield component
    elif isinstance(component, list):
        for inner in component:
            yield from _texts(inner)
    elif isinstance(component, dict):
        props = component.get("props", {})
        yield from _texts(props.get("children"))
        if component.get("type") == "Graph":
            layout = props["figure"]["layout"]
            yield from (layout["title"]["text"], *(note["text"] for note in layout.get("annotations", [])))


def components(component: object) -> Iterator[dict[str, Any]]:
    """The component and all in it, from the outside to the inside."""
    if isinstance(component, list):
        for inner in component:
            yield from components(inner)
    elif isinstance(component, dict):
        yield component
        yield from components(component.get("props", {}).get("children"))


def links(component: object) -> list[str]:
    """Where the links in it lead."""
    return [one["props"]["href"] for one in components(component) if "href" in one["props"]]


def _split(output: str) -> list[str]:
    return output.strip(".").split("...")


def _prop(skeleton: dict[str, Any], component_id: str, name: str) -> Any:
    found = (one["props"] for one in components(skeleton) if one["props"].get("id") == component_id)
    return next(found, {}).get(name)
