"""Options that nobody set: calibrated where the key holds, else the defaults, each with its origin."""

from datetime import UTC, datetime
from typing import Any

import pytest

from contract.calibration import Calibration, CalibrationKey
from contract.jobs import ArmSpec, EngineOptions
from runtime.engine.compute import decide_compute
from runtime.host.machine import this_machine
from runtime.measured.conditions import calibration_key, model_digest
from runtime.measured.options import ArmSetup, decide_options
from tests.fakes.attempt_specs import attempt_spec, shared_prefix
from tests.fakes.calibrations import KEY, calibration
from tests.runtime.measured.conftest import Run, of_type


def decided(given: Calibration | None = None, here: CalibrationKey = KEY, **engine: Any) -> ArmSetup:
    arm = ArmSpec(arm="paged", mode="paged", engine=EngineOptions(**engine))
    return decide_options(arm, here, given)


def values(setup: ArmSetup) -> tuple[int, int, int]:
    return setup.threads, setup.max_batch_sequences, setup.prefill_chunk_tokens


@pytest.mark.parametrize(("tier", "chunk_tokens"), [("aten", 512), ("cuda", 512), ("native", 256)])
def test_where_nothing_is_known_the_defaults_are_every_core_8_and_the_tiers_chunk(
    tier: str, chunk_tokens: int
) -> None:
    setup = decided(here=KEY.model_copy(update={"cores": 12, "tier": tier}))
    assert values(setup) == (12, 8, chunk_tokens)
    assert set(setup.origins.values()) == {"default"}
    assert setup.ignored == ""


def test_a_calibration_that_holds_fills_what_was_left_open_and_nothing_else() -> None:
    setup = decided(calibration(threads=1, prefill_chunk_tokens=128), max_batch_sequences=4)
    assert values(setup) == (1, 4, 128)
    assert setup.origins == {
        "threads": "calibrated",
        "max_batch_sequences": "asked",
        "prefill_chunk_tokens": "calibrated",
    }


@pytest.mark.parametrize("name", list(CalibrationKey.model_fields))
def test_one_made_for_anything_else_is_ignored_as_a_whole_with_the_reason(name: str) -> None:
    other = 7 if name == "cores" else "other"
    given = calibration(threads=1, prefill_chunk_tokens=128)
    setup = decided(given, KEY.model_copy(update={name: other}), max_batch_sequences=4)
    assert values(setup) == (7 if name == "cores" else 2, 4, 512 if name == "tier" else 256)
    assert setup.origins["threads"] == setup.origins["prefill_chunk_tokens"] == "default"
    assert setup.ignored == f"{name}: {getattr(KEY, name)} then, {other} now"


def test_one_that_would_not_have_been_used_is_not_missed() -> None:
    asked = {"threads": 1, "max_batch_sequences": 2, "prefill_chunk_tokens": 64}
    setup = decided(calibration(), KEY.model_copy(update={"tier": "aten"}), **asked)
    assert set(setup.origins.values()) == {"asked"}
    assert setup.ignored == ""


def test_an_attempt_runs_with_what_its_device_was_calibrated_to_and_says_so(run: Run, tiny_model) -> None:
    spec = attempt_spec(shared_prefix(agents=2, calls=1), ["serial", "paged"])
    serial, paged = spec.arms
    open_options = {"threads": None, "max_batch_sequences": None, "prefill_chunk_tokens": None}
    engine = paged.engine.model_copy(update=open_options)
    key = calibration_key(decide_compute(engine, this_machine()), this_machine(), model_digest(tiny_model))
    given = Calibration(
        model="tiny",
        key=key,
        measured_at=datetime(2026, 11, 29, tzinfo=UTC),
        threads=1,
        max_batch_sequences=1,
        prefill_chunk_tokens=16,
    )
    left_open = paged.model_copy(update={"engine": engine})
    stale = given.model_copy(update={"key": key.model_copy(update={"tier": "another"})})
    calibrations = {"serial": stale, "paged": given}
    _, events = run(spec.model_copy(update={"arms": [serial, left_open], "calibrations": calibrations}))
    (recorded,) = of_type(events, "conditions_recorded")
    arms = {arm: each.model_dump(mode="json") for arm, each in recorded.conditions.arms.items()}
    assert arms["paged"]["option_origins"] == {
        "threads": "calibrated",
        "max_batch_sequences": "calibrated",
        "prefill_chunk_tokens": "calibrated",
    }
    assert (arms["paged"]["max_batch_sequences"], arms["paged"]["prefill_chunk_tokens"]) == (1, 16)
    assert arms["paged"]["calibrated_at"] == "2026-11-29T00:00:00Z"
    assert arms["serial"]["prefill_chunk_tokens"] == (256 if key.tier == "native" else 512)
    assert "tier: another then" in arms["serial"]["calibration_ignored"]
    # They were used and not only named.
    trials = {event.trial: event.arm for event in of_type(events, "trial_started")}
    batches = [each for each in of_type(events, "batch_executed") if trials[each.trial] == "paged"]
    assert batches
    for batch in batches:
        assert len(batch.decode) <= 1
        assert sum(member.tokens for member in batch.prefill) <= 16
