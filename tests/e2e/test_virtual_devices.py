"""A whole farm with emulated iPhones: the real runtime as their app, and faults on the way."""

from collections.abc import Iterator

import pytest

from contract.failures import FailureReason
from contract.states import AttemptState, JobOutcome, TargetKind
from tests.e2e.live_farm import LiveFarm, wait_for
from tests.fakes.device_rig import QUICK_AGENT
from tests.fakes.emulator import REAL_APP, EmulatedDevices

pytestmark = pytest.mark.phone

AGENT = {**QUICK_AGENT, "device_call_s": 8}


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedDevices]:
    with EmulatedDevices(tmp_path_factory.mktemp("devices"), ["16.7", "26.1"], REAL_APP) as devices:
        yield devices


@pytest.fixture(scope="module")
def farm(devices: EmulatedDevices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFarm]:
    farm = LiveFarm(
        tmp_path_factory.mktemp("farm"),
        DYNOFARM_USBMUX_ADDRESS=devices.usbmuxd_socket,
        **{f"DYNOFARM_{name.upper()}": str(value) for name, value in AGENT.items()},
    )
    try:
        farm.start_controller()
        farm.start_agent()
        wait_for(lambda: len(emulated(farm)) == 2, "both devices", farm.logs)
        yield farm
    finally:
        farm.stop()


def emulated(farm: LiveFarm) -> list[str]:
    with farm.client() as client:
        found = client.devices().devices
    assert all(device.virtual for device in found if device.kind is TargetKind.VIRTUAL)
    return [d.device_id for d in found if d.kind is TargetKind.VIRTUAL and d.state == "ready"]


def selectors(*udids: str) -> dict[str, object]:
    return {"selectors": [{"kind": "virtual", "device_id": udid} for udid in udids]}


def test_a_run_on_two_ios_versions_becomes_one_report_and_loses_nothing(
    farm: LiveFarm, devices: EmulatedDevices
) -> None:
    run_id = farm.submit(repetitions=2, **selectors(*devices.udids))
    run = farm.completed(run_id)
    assert [job.outcome for job in run.jobs] == [JobOutcome.SUCCEEDED] * 2
    audit = farm.audit(run_id)
    assert (audit.lost, audit.duplicated) == (0, 0)
    with farm.client() as client:
        report = client.report(run_id)
    assert {device.os_version for device in report.devices} == {"16.7", "26.1"}
    assert all(device.virtual for device in report.devices)
    for device in report.devices:
        assert device.arms["paged"].metrics["kv_hit_rate_tokens"].median > 0.5


def test_a_pulled_cable_is_tried_again_and_a_kill_for_memory_is_not(
    farm: LiveFarm, devices: EmulatedDevices
) -> None:
    pulled, small = devices.udids
    devices.fault(pulled, "detach", at="event:60", app="ends", for_s=1.0)
    devices.fault(small, "jetsam", at="event:60")
    away, killed = (farm.submit(repetitions=2, **selectors(udid)) for udid in devices.udids)
    (job,) = farm.completed(away).jobs
    assert [(attempt.state, attempt.reason) for attempt in job.attempts] == [
        (AttemptState.ERRORED, FailureReason.DEVICE_DISCONNECTED),
        (AttemptState.SUCCEEDED, None),
    ]
    (job,) = farm.completed(killed).jobs
    assert [(attempt.state, attempt.reason) for attempt in job.attempts] == [
        (AttemptState.FAILED, FailureReason.JETSAM)
    ]
    for run_id in (away, killed):
        audit = farm.audit(run_id)
        assert (audit.lost, audit.duplicated) == (0, 0)
