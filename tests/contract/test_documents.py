"""Schemas are fresh; specs, registry and catalogue are complete and refuse what is wrong."""

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import contract
from contract.administration import DeviceAction
from contract.failures import FAILURES, FailureReason
from contract.generate import rendered, schemas, stale_files
from contract.jobs import AttemptSpec
from contract.metrics import METRICS, UnknownMetricError, metric
from contract.model import ContractModel
from contract.rest import RunRequest
from contract.version import CONTRACT_VERSION, ContractVersionError, require_supported
from contract.workload import MAX_SEGMENT_TOKENS, MAX_WORKLOAD_TOKENS, CompiledWorkload
from controller.app import create_app
from controller.settings import Settings

VECTORS = Path(__file__).parents[2] / "contract" / "vectors"
SPEC_CASES: list[dict[str, Any]] = json.loads((VECTORS / "attempt_spec.json").read_text(encoding="utf-8"))[
    "cases"
]


def test_the_committed_schemas_are_fresh() -> None:
    assert stale_files() == []


def test_a_stale_missing_or_foreign_schema_is_noticed(tmp_path: Path) -> None:
    for name, document in schemas().items():
        (tmp_path / name).write_text(rendered(document), encoding="utf-8")
    assert stale_files(tmp_path) == []
    (tmp_path / "events.json").write_text("{}\n", encoding="utf-8")
    (tmp_path / "rest.json").unlink()
    (tmp_path / "old.json").write_text("{}\n", encoding="utf-8")
    assert stale_files(tmp_path) == ["events.json", "old.json", "rest.json"]


def public_models(of: type[ContractModel] = ContractModel) -> set[type[ContractModel]]:
    """Every model of the contract that is not only a part of its kinds."""
    for found in pkgutil.walk_packages(contract.__path__, "contract."):
        importlib.import_module(found.name)
    kinds = [each for each in of.__subclasses__() if each.__module__.startswith("contract.")]
    own = set() if kinds or of.__name__.startswith("_") else {of}
    return own.union(*(public_models(each) for each in kinds))


def described() -> set[str]:
    """Names that some schema explains."""
    documents = schemas().values()
    names = {name for document in documents for name in document.get("$defs", {})}
    return names | {document["title"] for document in documents if "title" in document}


def test_every_model_of_the_contract_is_in_a_schema() -> None:
    assert {model.__name__ for model in public_models()} - described() == set()


FRAMEWORKS_OWN = {"HTTPValidationError", "ValidationError"}


def test_every_body_of_a_route_is_in_a_schema(tmp_path: Path) -> None:
    app = create_app(Settings(database_url=f"sqlite:///{tmp_path}/farm.sqlite"))
    assert set(app.openapi()["components"]["schemas"]) - FRAMEWORKS_OWN - described() == set()


@pytest.mark.parametrize("case", SPEC_CASES, ids=lambda case: case["name"])
def test_an_attempt_spec_agrees_with_its_vector(case: dict[str, Any]) -> None:
    if case["valid"]:
        spec = AttemptSpec.model_validate_json(json.dumps(case["spec"]))
        assert AttemptSpec.model_validate_json(spec.model_dump_json()) == spec
        return
    with pytest.raises(ValidationError, match=case["message"]):
        AttemptSpec.model_validate_json(json.dumps(case["spec"]))


def workload(*agents: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "w",
        "version": 1,
        "digest": "sha256:" + "0" * 64,
        "params": {},
        "segments": [{"segment_id": "s", "text": "hello"}],
        "agents": list(agents),
    }


def call(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"parts": list(parts), "max_output_tokens": 4, **more}


SEGMENT = {"kind": "segment", "segment_id": "s"}
UNKNOWN = {"kind": "segment", "segment_id": "t"}
LATER = {"agent": "a", "call": 1}
NOBODY = {"agent": "z", "call": 0}


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        (
            [{"agent": "a", "calls": [call(UNKNOWN)]}],
            "no segment is named 't'",
        ),
        ([{"agent": "a", "calls": [call({"kind": "output", "agent": "b", "call": 0})]}], "'b' has no call 0"),
        ([{"agent": "a", "calls": [call(SEGMENT)]}] * 2, "same name"),
        (
            [{"agent": "a", "calls": [call(SEGMENT, after=[LATER]), call(SEGMENT)]}],
            "wait for",
        ),
        ([{"agent": "a", "calls": [call(SEGMENT, after=[NOBODY])]}], "'z' has no call"),
    ],
)
def test_a_task_graph_that_cannot_run_is_refused(agents: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CompiledWorkload.model_validate(workload(*agents))


def test_budgets_that_no_memory_holds_are_refused() -> None:
    def of_tokens(*tokens: int) -> dict[str, Any]:
        segments = [{"segment_id": f"s{n}", "text": "x", "tokens": each} for n, each in enumerate(tokens)]
        plan = {"agent": "a", "calls": [call({"kind": "segment", "segment_id": "s0"})]}
        return {**workload(plan), "segments": segments}

    full = [MAX_SEGMENT_TOKENS] * (MAX_WORKLOAD_TOKENS // MAX_SEGMENT_TOKENS)
    assert CompiledWorkload.model_validate(of_tokens(*full))
    with pytest.raises(ValidationError, match="tokens together"):
        CompiledWorkload.model_validate(of_tokens(*full, 1))
    with pytest.raises(ValidationError, match="less than or equal"):
        CompiledWorkload.model_validate(of_tokens(MAX_SEGMENT_TOKENS + 1))


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\udfff tail"], ids=ascii)
def test_a_sent_text_that_no_store_holds_is_refused_by_its_field(text: str) -> None:
    base = {"workload": {"name": "single"}, "model": "m"}
    places: dict[tuple[str | int, ...], dict[str, Any]] = {
        ("labels", "branch"): {"labels": {"branch": text}},
        ("labels",): {"labels": {text: "main"}},
        ("arms", 0, "engine", "dtype"): {"arms": [{"arm": "a", "mode": "paged", "engine": {"dtype": text}}]},
        ("workload", "params", "deep", 1): {"workload": {"name": "single", "params": {"deep": [1, text]}}},
    }
    for place, changed in places.items():
        with pytest.raises(ValidationError) as refused:
            RunRequest.model_validate({**base, **changed})
        (line,) = refused.value.errors()
        assert (line["loc"], line["type"]) == (place, "not_storable")
        # The refusal itself can be written down.
        refused.value.json()
    with pytest.raises(ValidationError, match="remove it"):
        DeviceAction(reason=text)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_a_sent_number_is_finite_wherever_it_stands(number: float) -> None:
    base = {"workload": {"name": "single"}, "model": "m"}
    for changed in ({"gate": {"alpha": number}}, {"workload": {"name": "single", "params": {"x": [number]}}}):
        with pytest.raises(ValidationError) as refused:
            RunRequest.model_validate({**base, **changed})
        assert [line["type"] for line in refused.value.errors()] == ["not_finite"]


def test_a_sent_text_may_be_any_other_text() -> None:
    labels = {"état": "déjà vu \U0001f600", "": "\n\t"}
    request = RunRequest.model_validate({"workload": {"name": "single"}, "model": "m", "labels": labels})
    assert RunRequest.model_validate_json(request.model_dump_json()).labels == labels


def test_every_failure_reason_says_who_acts_and_what_to_try() -> None:
    assert set(FAILURES) == set(FailureReason)
    assert all(kind.advice for kind in FAILURES.values())


def test_every_metric_says_what_it_means_and_where_it_comes_from() -> None:
    for name, definition in METRICS.items():
        assert definition.name == name
        assert definition.definition
        assert definition.source
        assert definition.floor_percent > 0


def test_an_unknown_metric_lists_the_known_ones() -> None:
    with pytest.raises(UnknownMetricError, match="wall_s"):
        metric("walls")


def test_an_unknown_contract_version_is_refused_with_what_to_do() -> None:
    require_supported(CONTRACT_VERSION)
    with pytest.raises(ContractVersionError, match=r"'9\.9' is not known.*install the same"):
        require_supported("9.9")
