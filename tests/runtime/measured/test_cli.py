"""The runtime's entry point in this process: what it says of attempts that cannot be carried out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.failures import FailureReason
from contract.runtime_link import RuntimeExit
from runtime.measured.cli import main
from tests.fakes.attempt_specs import attempt_folder, attempt_spec, shared_prefix, write_lease
from tests.fakes.tiny_model import save_tiny_model
from tests.runtime.measured.conftest import Run, last_word, of_type, read_events, start


def cut_short(model: Path) -> None:
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[: len(weights) // 2])


def without_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").unlink()


def of_another_family(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))


def with_too_few_rows(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"vocab_size": 100}))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (cut_short, FailureReason.MODEL_CORRUPT),
        (without_tokenizer, FailureReason.MODEL_MISSING),
        (of_another_family, FailureReason.UNSUPPORTED_ARCHITECTURE),
        (with_too_few_rows, FailureReason.MODEL_CORRUPT),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_bad_model_has_its_reason(
    run: Run, tmp_path: Path, spoil: Callable[[Path], None], reason: FailureReason
) -> None:
    model = save_tiny_model(tmp_path / "model")
    spoil(model)
    exit_code, events = run(attempt_spec(shared_prefix()), model)
    assert (exit_code, last_word(events).reason) == (RuntimeExit.FAILED, reason)


def test_a_model_that_is_not_there_has_its_reason(run: Run, tmp_path: Path) -> None:
    exit_code, events = run(attempt_spec(shared_prefix()), tmp_path / "nothing.gguf")
    assert (exit_code, last_word(events).reason) == (RuntimeExit.FAILED, FailureReason.MODEL_MISSING)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"contract_version": "99.0"}, (FailureReason.CONTRACT_VERSION, "99.0")),
        ({"contract_version": "99.0", "news": 1}, (FailureReason.CONTRACT_VERSION, "99.0")),
        ({"contract_version": ["1.0"]}, (FailureReason.CONTRACT_VERSION, "['1.0']")),
        ({"colour": "red"}, (FailureReason.BAD_SPEC, "colour")),
        ({"trials": []}, (FailureReason.BAD_SPEC, "trials")),
        ({"arms": [{"arm": "a", "mode": "fast"}]}, (FailureReason.BAD_SPEC, "arms.0.mode")),
    ],
)
def test_a_spec_that_cannot_be_carried_out_is_said_on_stderr_and_in_the_events(
    tmp_path: Path,
    tiny_model: Path,
    capfd: pytest.CaptureFixture[str],
    change: dict[str, Any],
    said: tuple[FailureReason, str],
) -> None:
    folder = attempt_folder(tmp_path, attempt_spec(shared_prefix()))
    spec = json.loads((folder / "spec.json").read_text())
    (folder / "spec.json").write_text(json.dumps(spec | change))
    assert start(folder, tiny_model, tmp_path / "s") == RuntimeExit.USAGE
    finished = last_word(read_events(folder))
    reason, named = said
    assert (finished.status, finished.reason) == ("failed", reason)
    assert named in finished.detail
    out, err = capfd.readouterr()
    assert out == ""
    assert named in err
    assert "what to try" in err


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2]", "[" * 100_000, None], ids=["empty", "cut", "list", "deep", "none"]
)
def test_a_spec_that_is_no_object_is_a_usage_error(
    tmp_path: Path, tiny_model: Path, text: str | None
) -> None:
    folder = attempt_folder(tmp_path, attempt_spec(shared_prefix()))
    (folder / "spec.json").unlink()
    if text is not None:
        (folder / "spec.json").write_text(text)
    assert start(folder, tiny_model, tmp_path / "s") == RuntimeExit.USAGE
    assert last_word(read_events(folder)).reason is FailureReason.BAD_SPEC


def test_a_folder_whose_name_is_no_attempt_gets_no_events(tmp_path: Path, tiny_model: Path) -> None:
    folder = tmp_path / "somewhere"
    folder.mkdir()
    assert start(folder, tiny_model, tmp_path / "s") == RuntimeExit.USAGE
    assert list(folder.iterdir()) == []


def test_without_a_lease_nothing_is_run(
    tmp_path: Path, tiny_model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = attempt_folder(tmp_path, attempt_spec(shared_prefix()))
    (folder / "lease.json").unlink()
    assert start(folder, tiny_model, tmp_path / "s") == RuntimeExit.USAGE
    assert not of_type(read_events(folder), "trial_started")
    assert "lease" in capfd.readouterr().err


def test_a_second_runtime_in_the_same_folder_leaves_the_first_one_s_events_alone(
    tmp_path: Path, tiny_model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = attempt_folder(tmp_path, attempt_spec(shared_prefix(agents=1, calls=1), ["paged"]))
    assert start(folder, tiny_model, tmp_path / "s") == RuntimeExit.COMPLETED
    written = (folder / "events.jsonl").read_bytes()
    assert start(folder, tiny_model, tmp_path / "s") == RuntimeExit.USAGE
    assert (folder / "events.jsonl").read_bytes() == written
    assert "events file cannot be created" in capfd.readouterr().err


def test_a_lease_that_has_ended_ends_the_runtime_before_any_trial(
    tmp_path: Path, tiny_model: Path, socket_path: Path
) -> None:
    folder = attempt_folder(tmp_path, attempt_spec(shared_prefix()), lease_s=0.0)
    assert start(folder, tiny_model, socket_path) == RuntimeExit.LEASE_EXPIRED
    finished = last_word(read_events(folder))
    assert (finished.status, finished.reason) == ("failed", FailureReason.LEASE_EXPIRED)


def test_a_cancelled_attempt_says_so(tmp_path: Path, tiny_model: Path, socket_path: Path) -> None:
    folder = attempt_folder(tmp_path, attempt_spec(shared_prefix(), pairs=50))
    write_lease(folder, 60, "cancel")
    assert start(folder, tiny_model, socket_path) == RuntimeExit.CANCELLED
    finished = last_word(read_events(folder))
    assert (finished.status, finished.reason) == ("cancelled", FailureReason.CANCELLED)


@pytest.mark.parametrize("arguments", [[], ["--attempt-dir", "x"], ["--bogus"]])
def test_a_wrong_command_line_ends_with_the_usage_code(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == RuntimeExit.USAGE
    assert "usage" in capfd.readouterr().err
