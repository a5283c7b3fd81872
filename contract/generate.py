"""Writes contract/schema/*.json from the models; `--check` only says whether they are fresh.

Run: python -m contract.generate [--check]. Exit 1 when a schema is stale.
"""

import importlib
import json
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pydantic import TypeAdapter

import contract
from contract import agent_api, ios_app, jobs, problems, runtime_link, workload
from contract.events import EVENT_ADAPTER, MAX_EVENT_LINE_BYTES, STREAMS_OF_TYPE
from contract.metrics import METRICS
from contract.model import ContractModel
from contract.states import GateExit
from contract.version import CONTRACT_VERSION, SUPPORTED_CONTRACT_VERSIONS

SCHEMA_DIRECTORY: Final = Path(__file__).parent / "schema"
_OF_ONE_ROOT: Final = frozenset({"jobs", "metrics", "problems", "workload"})
"""Modules whose models are all parts of a document that has a name of its own."""


def schemas() -> dict[str, dict[str, Any]]:
    """File name to document: the JSON Schema of every model here, module by module, and what is not a model
    as data. What is added to a module is in its document without another step."""
    documents = {
        "events.json": EVENT_ADAPTER.json_schema(),
        "workload.json": workload.CompiledWorkload.model_json_schema(),
        "attempt_spec.json": jobs.AttemptSpec.model_json_schema(),
        "problem.json": problems.Problem.model_json_schema(),
    }
    for name in sorted(_module_names() - _OF_ONE_ROOT):
        models = _models_of(importlib.import_module(f"contract.{name}"))
        if models:
            _, documents[f"{name}.json"] = TypeAdapter.json_schemas(
                [(model.__name__, "validation", TypeAdapter(model)) for model in models]
            )
    for document in documents.values():
        document["x-contract-version"] = CONTRACT_VERSION
    documents["metrics.json"] = {
        "x-contract-version": CONTRACT_VERSION,
        "metrics": [definition.model_dump(mode="json") for definition in METRICS.values()],
    }
    documents["constants.json"] = {"x-contract-version": CONTRACT_VERSION, **_constants()}
    return documents


def _module_names() -> set[str]:
    return {found.name for found in pkgutil.iter_modules(contract.__path__) if not found.ispkg}


def _models_of(module: ModuleType) -> list[type[ContractModel]]:
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, ContractModel)
        and each.__module__ == module.__name__
        and each.model_fields
    ]


def _constants() -> dict[str, Any]:
    """What both sides must agree on and no schema can say."""
    return {
        "contract_versions": sorted(SUPPORTED_CONTRACT_VERSIONS),
        "limits": {
            "event_line_bytes": MAX_EVENT_LINE_BYTES,
            "event_batch_bytes": agent_api.MAX_BATCH_BYTES,
        },
        "runtime_link": _named_values(runtime_link),
        "ios_app": _named_values(ios_app),
        "exit_codes": {
            "runtime": {each.name.lower(): each.value for each in runtime_link.RuntimeExit},
            "gate": {each.name.lower(): each.value for each in GateExit},
        },
        "streams_of_event_type": {name: sorted(streams) for name, streams in STREAMS_OF_TYPE.items()},
    }


def _named_values(module: ModuleType) -> dict[str, str | int | float]:
    return {
        name.lower(): value
        for name, value in vars(module).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str | int | float)
    }


def rendered(document: dict[str, Any]) -> str:
    """The committed form: sorted, indented, one newline at the end."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def stale_files(directory: Path = SCHEMA_DIRECTORY) -> list[str]:
    """Names of schema files that are missing, differ, or should not be there."""
    wanted = {name: rendered(document) for name, document in schemas().items()}
    found = {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*.json")}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def main(arguments: list[str]) -> int:
    """Write, or with --check compare; returns the exit code."""
    stale = stale_files()
    if "--check" in arguments:
        if stale:
            sys.stderr.write(f"stale: {', '.join(stale)}; run python -m contract.generate\n")
        return 1 if stale else 0
    SCHEMA_DIRECTORY.mkdir(exist_ok=True)
    for name, document in schemas().items():
        (SCHEMA_DIRECTORY / name).write_text(rendered(document), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
