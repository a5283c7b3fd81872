"""What a device was calibrated to: kept with it, handed to the arms that leave something open."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from contract.calibration import Calibration
from contract.jobs import ArmSpec, EngineOptions
from controller.db.models import DeviceRow, JobRow
from controller.runs.views import device_views
from controller.scheduling.facts import calibrations_for
from tests.controller.farm import START, Farm, fixed_id, report
from tests.fakes.calibrations import KEY
from tests.fakes.calibrations import calibration as fake_calibration


def calibration(age_s: float = 0.0, model: str = "tiny", threads: int = 2, **key: Any) -> Calibration:
    """One of this age when the farm's clock starts, whose key differs so."""
    at = START - timedelta(seconds=age_s)
    return fake_calibration(model, threads, key=KEY.model_copy(update=key), measured_at=at)


def chosen(calibrations: list[Calibration], **engine: Any) -> Calibration | None:
    arm = ArmSpec(arm="paged", mode="paged", engine=EngineOptions(**engine))
    return calibrations_for([arm], "tiny", calibrations).get("paged")


def test_the_newest_of_the_model_is_taken() -> None:
    old, new, other = calibration(60), calibration(5, threads=1), calibration(0, model="other")
    assert chosen([old, new, other]) == new
    assert chosen([other]) is None
    assert chosen([]) is None


@pytest.mark.parametrize(
    ("engine", "fits"),
    [
        ({"dtype": "bfloat16", "tier": "native", "device": "cpu"}, True),
        ({"dtype": "float32"}, False),
        ({"tier": "aten"}, False),
        ({"device": "cuda"}, False),
        ({"weight_dtype": "int8"}, False),
    ],
)
def test_one_for_other_kernels_or_precision_is_not_for_this_arm(engine: dict[str, Any], fits: bool) -> None:
    assert (chosen([calibration()], **engine) is not None) == fits


def test_an_arm_that_asks_for_everything_gets_none() -> None:
    all_but_one: dict[str, Any] = {"threads": 1, "max_batch_sequences": 4}
    assert chosen([calibration()], **all_but_one) is not None
    assert chosen([calibration()], **all_but_one, prefill_chunk_tokens=64) is None


def test_every_arm_is_decided_for_itself() -> None:
    arms = [
        ArmSpec(arm="serial", mode="serial", engine=EngineOptions(dtype="float32")),
        ArmSpec(arm="paged", mode="paged"),
    ]
    plain = calibration(60, dtype="float32")
    assert calibrations_for(arms, "tiny", [plain, calibration()]) == {
        "serial": plain,
        "paged": calibration(),
    }


@pytest.fixture
def farm() -> Farm:
    return Farm()


def calibrated_device(farm: Farm, *calibrations: Calibration) -> str:
    """Its agent's id; the device is d1."""
    device_agent_id = farm.add_agent()
    farm.hello(device_agent_id, report("d1").model_copy(update={"calibrations": list(calibrations)}))
    return device_agent_id


def test_a_grant_brings_each_arm_its_device_s_calibration(farm: Farm) -> None:
    device_agent_id = calibrated_device(farm, calibration())
    farm.add_job()
    lease = farm.granted(device_agent_id, "d1")
    assert lease.spec.calibrations == dict.fromkeys(["serial", "paged"], calibration())
    assert all(arm.engine == EngineOptions() for arm in lease.spec.arms)


def test_a_repeated_claim_gets_the_same_although_the_device_was_calibrated_anew(farm: Farm) -> None:
    device_agent_id = calibrated_device(farm, calibration())
    farm.add_job()
    claim_id = fixed_id("clm", 1)
    first = farm.claim(device_agent_id, "d1", claim_id=claim_id)
    newer = report("d1").model_copy(update={"calibrations": [calibration(-60, threads=1)]})
    assert first is not None
    farm.hello(device_agent_id, newer, leases=(first,))
    assert farm.claim(device_agent_id, "d1", claim_id=claim_id) == first


def test_a_hello_without_calibrations_works_and_takes_back_what_was_there(farm: Farm) -> None:
    device_agent_id = calibrated_device(farm, calibration())
    assert len(farm.device("d1").calibrations) == 1
    farm.pass_time(1)
    farm.hello(device_agent_id, "d1")
    assert farm.device("d1").calibrations == []
    farm.add_job()
    assert farm.granted(device_agent_id, "d1").spec.calibrations == {}


def test_the_device_s_view_shows_them_and_leaves_out_what_no_longer_parses(farm: Farm) -> None:
    device_agent_id = calibrated_device(farm, calibration())
    stored = farm.device("d1").calibrations
    with farm.unit_of_work() as work:
        work.session.execute(update(DeviceRow).values(calibrations=[*stored, {"model": "of another time"}]))
    with farm.unit_of_work() as work:
        (view,) = device_views(work.session, [work.session.get_one(DeviceRow, "d1")])
    assert view.calibrations == [calibration()]
    farm.add_job()
    assert farm.granted(device_agent_id, "d1").spec.calibrations["serial"] == calibration()


def test_a_job_that_0_1_stored_with_a_field_for_them_in_each_arm_is_granted(farm: Farm) -> None:
    device_agent_id = calibrated_device(farm, calibration())
    job_id = farm.add_job()
    with farm.unit_of_work() as work:
        job = work.session.get_one(JobRow, job_id)
        arms = [{**arm, "calibration": None} for arm in job.spec["arms"]]
        job.spec = {**job.spec, "arms": arms}
    assert farm.granted(device_agent_id, "d1").spec.calibrations["paged"] == calibration()
