"""The page of the fleet."""

from contract.states import DeviceState, TargetKind
from tests.fakes import dashboard_story as story
from tests.fakes.dashboard_rest import FakeFarm
from tests.fakes.dashboard_viewer import DashboardViewer, links, text_of

ADDRESS = "/dashboard/"
BODY = "fleet-body.children"


def _body(viewer: DashboardViewer) -> object:
    return viewer.fill(ADDRESS, BODY)["fleet-body"]["children"]


def test_before_the_first_answer_the_page_says_that_it_loads(viewer: DashboardViewer) -> None:
    skeleton = viewer.layout_of(ADDRESS)
    assert "Loading the devices" in text_of(skeleton)
    assert skeleton["title"] == "Fleet · dynofarm"


def test_a_device_shows_its_state_with_reasons_model_and_system(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    farm.devices = [
        story.device(
            "00008120-001A", kind=TargetKind.IOS, state=DeviceState.COOLING, reasons=["thermal_serious"],
            device_model="iPhone15,2", os_name="iOS", os_version="17.5", os_build="21F79",
        )
    ]  # fmt: skip
    text = text_of(_body(viewer))
    assert "1 device: 0 ready, 0 at work" in text
    for told in ("00008120-001A", "cooling", "thermal serious", "iPhone15,2", "iOS 17.5 21F79", "8 240 MB"):
        assert told in text


def test_a_device_at_work_links_to_its_run(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.devices = [story.device(state=DeviceState.LEASED, attempt_id=story.identifier("att", 3))]
    farm.runs = [story.live_run(3)]
    body = _body(viewer)
    assert "shared-prefix on smollm2-135m-instruct" in text_of(body)
    assert links(body) == [f"/dashboard/runs/{story.identifier('run', 3)}"]


def test_an_attempt_of_a_run_that_is_not_on_the_first_page_is_named(
    farm: FakeFarm, viewer: DashboardViewer
) -> None:
    farm.devices = [story.device(attempt_id=story.identifier("att", 77))]
    assert f"attempt {story.identifier('att', 77)}" in text_of(_body(viewer))


def test_nobody_asks_for_runs_while_no_device_is_at_work(farm: FakeFarm, viewer: DashboardViewer) -> None:
    _body(viewer)
    assert farm.calls == ["/v1/devices?limit=200"]


def test_a_virtual_device_is_marked(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.devices = [story.device(), story.device("virtual-1", kind=TargetKind.VIRTUAL, virtual=True)]
    assert text_of(_body(viewer)).split().count("virtual") == 1


def test_a_farm_without_devices_says_how_to_get_one(farm: FakeFarm, viewer: DashboardViewer) -> None:
    farm.devices = []
    text = text_of(_body(viewer))
    assert "No device has reported yet." in text
    assert "dynofarm agent" in text


def test_who_is_not_signed_in_is_led_to_the_sign_in_page(stranger: DashboardViewer, farm: FakeFarm) -> None:
    body = _body(stranger)
    assert "You are not signed in." in text_of(body)
    assert links(body) == ["/login?next=/dashboard/"]
    assert farm.calls == []
