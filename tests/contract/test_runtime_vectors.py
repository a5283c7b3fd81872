"""What a runtime in another language reads and writes first: files, lines of the socket, numbers."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from contract import ios_app, runtime_link
from contract.generate import SCHEMA_DIRECTORY
from contract.model import ContractModel

VECTORS = Path(__file__).parents[2] / "contract" / "vectors"
MODULES = {"runtime_link.json": runtime_link, "ios_app.json": ios_app}
CASES: list[tuple[str, dict[str, Any]]] = [
    (file, case)
    for file in MODULES
    for case in json.loads((VECTORS / file).read_text(encoding="utf-8"))["cases"]
]
VALID = [(file, case) for file, case in CASES if case["valid"]]
REFUSED = [(file, case) for file, case in CASES if not case["valid"]]


def named(cases: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [case["name"] for _, case in cases]


def model_of(file: str, case: dict[str, Any]) -> type[ContractModel]:
    model: type[ContractModel] = getattr(MODULES[file], case["model"])
    return model


@pytest.mark.parametrize(("file", "case"), VALID, ids=named(VALID))
def test_a_valid_text_is_read_and_written_back_as_it_was(file: str, case: dict[str, Any]) -> None:
    model = model_of(file, case)
    read = model.model_validate_json(case["text"])
    assert model.model_validate_json(read.model_dump_json()) == read
    assert json.loads(read.model_dump_json()).items() >= json.loads(case["text"]).items()


@pytest.mark.parametrize(("file", "case"), REFUSED, ids=named(REFUSED))
def test_a_refused_text_names_its_field(file: str, case: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        model_of(file, case).model_validate_json(case["text"])
    assert ".".join(map(str, caught.value.errors()[0]["loc"])) == case["field"]


@pytest.mark.parametrize("file", MODULES)
def test_every_model_has_a_vector_that_is_read_and_one_that_is_refused(file: str) -> None:
    models = set(json.loads((SCHEMA_DIRECTORY / file).read_text(encoding="utf-8"))["$defs"])
    for cases in (VALID, REFUSED):
        assert {case["model"] for of, case in cases if of == file} >= models - {"Stream"}


def test_a_run_is_the_same_as_a_file_and_as_an_environment() -> None:
    run = ios_app.RunFile(attempt_folder="attempts/a", model_folder="models/m", port=49_152)
    assert ios_app.RunFile.of_environment({**run.environment(), "HOME": "/var/mobile"}) == run


def test_names_and_exit_codes_are_there_as_data() -> None:
    constants = json.loads((SCHEMA_DIRECTORY / "constants.json").read_text(encoding="utf-8"))
    assert constants["runtime_link"]["lease_file"] == runtime_link.LEASE_FILE
    assert constants["ios_app"]["env_port"] == ios_app.ENV_PORT
    assert constants["exit_codes"]["runtime"] == {
        "completed": 0, "failed": 1, "usage": 2, "cancelled": 3, "lease_expired": 4
    }  # fmt: skip
    assert constants["streams_of_event_type"]["token_emitted"] == ["control"]
