"""From the lines of a session to the figures of the document. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from benchmarks.plan import BEST, OTHERS, OTHERS_PERCENT_MAX, OURS
from benchmarks.results import Line
from contract.bench import BenchReport

Reached = Literal["aim", "reach", "no", "not measured"]

NAIVE: Final = {
    OURS: "serial",
    "vllm_cpu": "naive",
    "openvino_genai": "naive",
    "llama_cpp": "serial_naive",
    "transformers_hf": "naive",
}
"""Each engine's own run without any reuse."""


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration over its counted runs. others_percent: the most during any of them."""

    peer: str
    mode: str
    version: str
    walls_s: tuple[float, ...]
    ttft_last_s: float
    itl_p50_ms: float
    itl_p95_ms: float
    peak_mb: float
    prompt_tokens: int
    cached_tokens: int | None
    output_sha256: frozenset[str]
    """Of all output tokens, one for each different output."""
    others_percent: float

    @property
    def wall_s(self) -> float:
        return statistics.median(self.walls_s)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the goals. reach and aim: what was asked for; lower says that less is better."""

    title: str
    value: float | None
    reach: float
    aim: float
    unit: str
    lower: bool
    note: str = ""

    @property
    def reached(self) -> Reached:
        if self.value is None:
            return "not measured"
        sign = 1.0 if self.lower else -1.0
        if sign * self.value <= sign * self.aim:
            return "aim"
        return "reach" if sign * self.value <= sign * self.reach else "no"


def rows(lines: Sequence[Line]) -> dict[str, Row]:
    """Configuration to its row, in the plan's order: the least disturbed runs, as many as were wanted."""
    found: dict[str, Row] = {}
    for config in (*BEST, *OTHERS):
        ran = [line for line in lines if line["config"] == config.name and line["result"] is not None]
        kept = sorted(ran, key=lambda line: line["others_cpu_percent"])[: config.wanted]
        if kept:
            found[config.name] = _row(config.peer, config.mode, kept)
    return found


def _row(peer: str, mode: str, kept: Sequence[Line]) -> Row:
    results: list[Mapping[str, Any]] = [line["result"] for line in kept]
    first = results[0]
    return Row(
        peer=first["peer"] if peer != OURS else OURS,
        mode=mode,
        version=str(first["version"]),
        walls_s=tuple(each["wall_s"] for each in results),
        ttft_last_s=statistics.median(max(each["ttft_s"].values()) for each in results),
        itl_p50_ms=statistics.median(each["itl_p50_ms"] for each in results),
        itl_p95_ms=statistics.median(each["itl_p95_ms"] for each in results),
        peak_mb=statistics.median(each["peak_rss_mb"] for each in results),
        prompt_tokens=first["prompt_tokens"],
        cached_tokens=first["cached_tokens"],
        output_sha256=frozenset(each["output_sha256"] for each in results),
        others_percent=max(line["others_cpu_percent"] for line in kept),
    )


def goals(own: BenchReport | None, table: Mapping[str, Row]) -> list[Figure]:
    """The figures that were asked for, in their order."""
    return [*_own_walls(own), *_ratios(table), *_own_steps(own)]


def further_goals(table: Mapping[str, Row]) -> list[Figure]:
    """What was asked for of every other shape."""
    return [Figure("wall, ours / vLLM", _ratio(table, "vllm_cpu/conc"), 0.95, 0.75, "", True)]


def _own_walls(own: BenchReport | None) -> list[Figure]:
    saved = own.reduction_vs_serial_percent if own else None
    saved_cached = own.reduction_vs_serial_cached_percent if own else None
    most = f"at most {own.bound.reduction_percent:.0f} % is possible" if own else ""
    step = own.decode_step_vs_bandwidth.batch_1 if own else None
    most_cached = (
        f"at most {own.bound.reduction_vs_serial_cached_percent:.0f} % is possible; "
        f"the serial arm's step is at {step:.2f} of bandwidth"
        if own and step is not None
        else ""
    )
    return [
        Figure("wall, paged against serial", saved, 82, 84, "% less", False, most),
        Figure("wall, paged against serial-cached", saved_cached, 50, 55, "% less", False, most_cached),
    ]


def _ratios(table: Mapping[str, Row]) -> list[Figure]:
    return [
        Figure("wall, ours / vLLM", _ratio(table, "vllm_cpu/conc"), 0.75, 0.55, "", True),
        Figure(
            *("wall, ours unprimed / OpenVINO GenAI primed", _ratio(table, "openvino_genai/conc_prime")),
            *(1.1, 0.8, "", True),
        ),
        Figure(
            *("wall, ours / llama-server's best set-up", _ratio(table, "llama_cpp/conc_save")),
            *(0.5, 0.4, "", True),
        ),
    ]


def _own_steps(own: BenchReport | None) -> list[Figure]:
    arms = own.arms if own else {}
    ttft = None
    if "paged" in arms and "serial" in arms:
        ttft = arms["paged"].ttft_last_s.median / arms["serial"].ttft_last_s.median
    alone, together = (
        (own.decode_step_vs_bandwidth.batch_1, own.decode_step_vs_bandwidth.batch_5) if own else (None, None)
    )
    gap = own.worst_gap_vs_median_itl if own else None
    return [
        Figure("wall, ours / bound of the work", own.wall_vs_bound if own else None, 2.5, 1.8, "", True),
        Figure("TTFT of the last agent, paged / serial", ttft, 0.05, 0.035, "", True),
        Figure("worst gap while a 2,000-token prefill arrives / median ITL", gap, 4, 2, "x", True),
        Figure("decode step against bandwidth, batch 1", alone, 0.5, 0.7, "", False),
        Figure("decode step against bandwidth, batch 5", together, 0.5, 0.65, "", False),
        Figure("pool waste", own.pool_waste_percent if own else None, 1, 1, "%", True),
        Figure(
            *("cost of the events, walls with against without", own.event_cost_percent if own else None),
            *(1, 1, "%", True),
        ),
        Figure(
            *("cost of the events, their processor time / wall",),
            *(own.event_processor_percent if own else None, 1, 1, "%", True),
        ),
        Figure(
            *("peak footprint above the weights as used and the live KV",),
            *(own.footprint_above_weights_and_live_kv_mb if own else None, 200, 100, "MB", True),
        ),
    ]


def _ratio(table: Mapping[str, Row], peer: str) -> float | None:
    ours = table.get(f"{OURS}/paged")
    theirs = table.get(peer)
    return ours.wall_s / theirs.wall_s if ours and theirs else None


def reduction_percent(row: Row, config: str, table: Mapping[str, Row]) -> float | None:
    """Less wall than the same engine without any reuse; None for that run itself or without a clean one."""
    peer = config.partition("/")[0]
    naive = table.get(f"{peer}/{NAIVE.get(peer, '')}")
    if naive is None or naive is row or naive.others_percent > OTHERS_PERCENT_MAX:
        return None
    return (1.0 - row.wall_s / naive.wall_s) * 100.0


def where_ahead(table: Mapping[str, Row]) -> list[str]:
    """A sentence for each figure in which a peer's best set-up beats our paged arm."""
    ours = table.get(f"{OURS}/paged")
    if ours is None:
        return []
    said = []
    for config in BEST:
        row = table.get(config.name)
        if row is None or config.peer == OURS:
            continue
        for title, unit, own, theirs in (
            ("wall", "s", ours.wall_s, row.wall_s),
            ("first token of the last agent", "s", ours.ttft_last_s, row.ttft_last_s),
            ("inter-token latency", "ms", ours.itl_p50_ms, row.itl_p50_ms),
            ("inter-token latency p95", "ms", ours.itl_p95_ms, row.itl_p95_ms),
            ("peak memory", "MB", ours.peak_mb, row.peak_mb),
        ):
            if theirs < own:
                ahead = (1.0 - theirs / own) * 100.0
                said.append(
                    f"{row.peer} ({row.mode}), {title}: {theirs:.4g} {unit} against our {own:.4g} {unit}, "
                    f"{ahead:.0f} % less"
                )
    return said
