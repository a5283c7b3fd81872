"""Writes contract/schema/*.json from the models; `--check` only says whether they are fresh.

Run: python -m contract.generate [--check]. Exit 1 when a schema is stale.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from contract import administration, agent_api, artifacts, health, jobs, problems, rest, workload
from contract.events import EVENT_ADAPTER
from contract.metrics import METRICS
from contract.version import CONTRACT_VERSION

SCHEMA_DIRECTORY: Final = Path(__file__).parent / "schema"


def schemas() -> dict[str, dict[str, Any]]:
    """File name to document: the JSON Schema of every body, and the metric catalogue as data."""
    documents = {
        "events.json": EVENT_ADAPTER.json_schema(),
        "workload.json": workload.CompiledWorkload.model_json_schema(),
        "attempt_spec.json": jobs.AttemptSpec.model_json_schema(),
        "problem.json": problems.Problem.model_json_schema(),
    }
    bodies = {
        "agent_api.json": (
            agent_api.EnrollRequest, agent_api.EnrollAnswer, agent_api.Hello, agent_api.HelloAnswer,
            agent_api.ClaimRequest, agent_api.Lease, agent_api.RenewRequest, agent_api.RenewAnswer,
            agent_api.EventBatchHeader, agent_api.EventsAnswer,
            agent_api.ResultRequest, agent_api.ResultAnswer, artifacts.ArtifactUpload, artifacts.ArtifactRef,
        ),
        "rest.json": (
            rest.RunRequest, rest.RunView, rest.RunPage, rest.DevicePage,
            rest.WorkloadList, rest.JobExplanation, rest.MetricList,
            administration.DeviceAction, administration.DeviceReservation, administration.DeviceHistory,
            administration.DeviceAgentList, administration.AuditPage, artifacts.ArtifactList,
            administration.UserTokenRequest, administration.EnrollmentTokenRequest,
            administration.NewToken, administration.TokenPage,
            rest.EventsPage, rest.RunReport, rest.Comparison, rest.LiveView, health.Health,
        ),
    }  # fmt: skip
    for name, models in bodies.items():
        _, documents[name] = TypeAdapter.json_schemas(
            [(model.__name__, "validation", TypeAdapter(model)) for model in models]
        )
    for document in documents.values():
        document["x-contract-version"] = CONTRACT_VERSION
    documents["metrics.json"] = {
        "x-contract-version": CONTRACT_VERSION,
        "metrics": [definition.model_dump(mode="json") for definition in METRICS.values()],
    }
    return documents


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
