"""What is wrong with a request is said before anything is stored, with the field and what to do."""

import json
from typing import Any

import pytest

from contract.problems import Problem
from contract.rest import RunPage
from tests.fakes.farm import Farm, host_report
from tests.fakes.session import Lab, run_request

pytestmark = pytest.mark.anyio

SOURCE_WITH_A_MISTAKE = "workload: mine\nversion: 1\ntitle: Mine\ndescription: x\nagentz: []\n"

ONE_TOKEN = """\
workload: one-token
version: 1
title: One token an answer
description: A classifier answers with one token.
chat: plain
texts: {q: {text: "Is the light red or green? "}}
agents:
  - name: a-{index}
    count: 3
    calls: [{input: {text: q}, output_tokens: 1, ignore_end: true}]
"""
SOURCE_TOO_LARGE = """\
workload: large
version: 1
title: Large
description: x
texts: {words: {text: words}}
agents:
  - {name: a, system: {text: words, tokens: 1000000000000}, calls: [{input: {text: words}, output_tokens: 1}]}
"""


def _arms(engine: dict[str, Any]) -> list[dict[str, Any]]:
    """The second one with engine options of its own."""
    return [{"arm": "serial", "mode": "serial"}, {"arm": "paged", "mode": "paged", "engine": engine}]


CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "unknown workload": ({"workload": {"name": "nope"}}, "validation", "/workload/name", "known: batch-8"),
    "unknown parameter": (
        {"workload": {"name": "single", "params": {"agentz": 3}}},
        "validation",
        "/workload/params/agentz",
        "known:",
    ),
    "a mistake in a sent file": (
        {"workload": {"source": SOURCE_WITH_A_MISTAKE, "source_name": "mine.yaml"}},
        "validation",
        "/workload/source",
        "mine.yaml:",
    ),
    "name and source": (
        {"workload": {"name": "single", "source": "x"}},
        "validation",
        "/workload",
        "exactly one",
    ),
    "two arms of one name": (
        {"arms": [{"arm": "serial", "mode": "serial"}, {"arm": "serial", "mode": "paged"}]},
        "validation",
        "/arms/1/arm",
        "two arms",
    ),
    "no such baseline": ({"baseline": "old"}, "validation", "/baseline", "serial, paged"),
    "no such candidate": ({"candidate": "new"}, "validation", "/candidate", "serial, paged"),
    "baseline is candidate": ({"candidate": "serial"}, "validation", "/candidate", "same arm"),
    "unknown metric": ({"gate": {"metrics": ["wall"]}}, "validation", "/gate/metrics/0", "wall_s"),
    "a metric without ratios": (
        {"gate": {"metrics": ["wall_s", "preemptions"]}},
        "validation",
        "/gate/metrics/1",
        "no ratio",
    ),
    "a gap between tokens of one": (
        {"gate": {"metrics": ["wall_s", "tpot_ms"]}, "workload": {"source": ONE_TOKEN}},
        "validation",
        "/gate/metrics/1",
        "raise output_tokens",
    ),
    "blocks of an arm without a pool": (
        {"gate": {"metrics": ["kv_blocks_peak"]}},
        "validation",
        "/gate/metrics/0",
        "compare with serial_cached",
    ),
    "headroom without a limit": (
        {"gate": {"metrics": ["min_headroom_mb"]}},
        "validation",
        "/gate/metrics/0",
        "set engine.memory_limit_bytes",
    ),
    "a floor that passes everything": (
        {"gate": {"floor_percent": {"wall_s": 100}}},
        "validation",
        "/gate/floor_percent/wall_s",
        "less than 100",
    ),
    "a level that no pairs can reach": (
        {"gate": {"alpha": 1e-9}},
        "validation",
        "/gate/alpha",
        "greater than or equal to 0.0001",
    ),
    "a metric named twice": (
        {"gate": {"metrics": ["wall_s", "ttft_ms", "wall_s"]}},
        "validation",
        "/gate/metrics/2",
        "name it once",
    ),
    "a budget that no memory holds": (
        {"workload": {"source": SOURCE_TOO_LARGE, "source_name": "large.yaml"}},
        "validation",
        "/workload/source",
        "large.yaml:7: agents.0.system.tokens: Input should be less than or equal to 1000000",
    ),
    "a file name of two lines": (
        {"workload": {"source": "x", "source_name": "a\nb"}},
        "validation",
        "/workload/source_name",
        "match pattern",
    ),
    "a text with a NUL": ({"labels": {"a": "x\0y"}}, "validation", "/labels/a", "NUL"),
    "a floor of no gate metric": (
        {"gate": {"floor_percent": {"ttft_ms": 1}}},
        "validation",
        "/gate/floor_percent/ttft_ms",
        "not among",
    ),
    "unknown engine option of an arm": (
        {
            "arms": [
                {"arm": "serial", "mode": "serial"},
                {"arm": "paged", "mode": "paged", "engine": {"blocks": 3}},
            ]
        },
        "validation",
        "/arms/1/engine/blocks",
        "kv_pool_tokens",
    ),
    "wrong engine option of an arm": (
        {
            "arms": [
                {"arm": "serial", "mode": "serial"},
                {"arm": "paged", "mode": "paged", "engine": {"threads": 0}},
            ]
        },
        "validation",
        "/arms/1/engine/threads",
        "greater than or equal to 1",
    ),
    "a pool that holds no sequence": (
        {"workload": {"name": "shared-prefix"}, "engine": {"kv_pool_tokens": 16}},
        "budget-too-small",
        "/engine/kv_pool_tokens",
        "set kv_pool_tokens to",
    ),
    "a pool of one arm that holds no sequence": (
        {"workload": {"name": "shared-prefix"}, "arms": _arms({"kv_pool_tokens": 16})},
        "budget-too-small",
        "/arms/1/engine/kv_pool_tokens",
        "or more",
    ),
    "no such device": (
        {"selectors": [{"kind": "host"}, {"device_id": "host-9"}]},
        "selector-unsatisfiable",
        "/selectors/1",
        "host-1: device_id is 'host-1', not 'host-9'",
    ),
    "no device of the kind": (
        {"selectors": [{"kind": "ios"}]},
        "selector-unsatisfiable",
        "/selectors/0",
        "kind is 'host'",
    ),
    "no such model": ({"model": "large"}, "selector-unsatisfiable", "/model", "it has: tiny"),
    "a typing mistake": ({"repetition": 3}, "validation", "/repetition", "not known"),
    "a value out of range": ({"repetitions": 0}, "validation", "/repetitions", "greater than or equal to 1"),
    "too many jobs": (
        {"workload": {"name": "sweep-agents"}, "selectors": [{"device_id": f"d{n}"} for n in range(64)]},
        "validation",
        "/selectors",
        "at most",
    ),
}


async def _submit(farm: Farm, body: dict[str, Any]) -> Problem:
    async with farm.client("submitter") as client:
        response = await client.post("/v1/runs", json=body)
    problem = Problem.model_validate(response.json())
    assert problem.status == response.status_code == 422
    return problem


@pytest.mark.parametrize(("changed", "code", "pointer", "advice"), CASES.values(), ids=CASES.keys())
async def test_a_wrong_request_is_told_which_field_and_what_to_do(
    farm: Farm, changed: dict[str, Any], code: str, pointer: str, advice: str
) -> None:
    lab = await Lab.of(farm)
    problem = await _submit(farm, run_request(**changed))
    assert problem.code == code
    assert pointer in [error.pointer for error in problem.errors]
    assert problem.detail.startswith(f"{pointer}: ")
    assert advice in problem.detail
    assert RunPage.model_validate(await lab.get("/v1/runs")).runs == []


async def test_half_of_a_surrogate_pair_is_refused_and_leaves_every_page_readable(farm: Farm) -> None:
    lab = await Lab.of(farm)
    body = json.dumps(run_request(labels={"branch": "\ud800"}))
    async with farm.client("submitter", headers={"Content-Type": "application/json"}) as client:
        response = await client.post("/v1/runs", content=body)
    problem = Problem.model_validate(response.json())
    assert (response.status_code, problem.code) == (422, "validation")
    assert [error.pointer for error in problem.errors] == ["/labels/branch"]
    assert RunPage.model_validate(await lab.get("/v1/runs")).runs == []


async def test_the_needed_pool_is_accepted_when_it_is_asked_for(farm: Farm) -> None:
    lab = await Lab.of(farm)
    workload = {"name": "shared-prefix"}
    problem = await _submit(farm, run_request(workload=workload, engine={"kv_pool_tokens": 16}))
    needed = int(problem.detail.split("kv_pool_tokens to ")[1].split(" ")[0])
    await _submit(farm, run_request(workload=workload, engine={"kv_pool_tokens": needed - 1}))
    assert (await lab.submit(workload=workload, engine={"kv_pool_tokens": needed})).jobs


async def test_the_nearest_device_is_named_first(farm: Farm) -> None:
    lab = await Lab.of(farm)
    await lab.agent.hello(host_report(), host_report("host-2", labels={"rack": "b"}))
    selector = {"kind": "host", "labels": {"rack": "b"}, "os_version": "7"}
    problem = await _submit(farm, run_request(selectors=[selector]))
    assert problem.detail.index("host-2") < problem.detail.index("host-1")


async def test_whoever_wants_to_wait_may_submit_to_an_empty_farm(farm: Farm) -> None:
    async with farm.client("submitter") as client:
        response = await client.post("/v1/runs", json=run_request(wait_for_capacity=True))
    assert response.status_code == 201
    assert response.json()["jobs"][0]["waiting_reason"] == "the farm has no devices yet"


async def test_arms_get_the_run_s_options_under_their_own(farm: Farm) -> None:
    lab = await Lab.of(farm)
    arms = _arms({"block_tokens": 64})
    await lab.submit(arms=arms, engine={"threads": 3, "block_tokens": 16})
    serial, paged = (await lab.claim()).spec.arms
    assert (serial.engine.threads, serial.engine.block_tokens) == (3, 16)
    assert (paged.engine.threads, paged.engine.block_tokens) == (3, 64)
