"""docs/benchmarks.md from a session: the goals, the peers, where one is ahead, how it was measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.comparison import Figure, Row, further_goals, goals, reduction_percent, rows, where_ahead
from benchmarks.plan import OTHERS_PERCENT_MAX, OURS
from benchmarks.results import Session, last_session
from contract.bench import ArmFigures, BenchReport
from contract.rest import Spread

NOTES: Final = Path(__file__).parent / "notes.md"
METHOD: Final = Path(__file__).parent / "method.md"
MAIN_SHAPE: Final = "smollm2-135m"
_HEAD: Final = """# Benchmarks

Written by `make bench` (`python -m benchmarks.run`) from the raw lines in `benchmarks/results/`; edit
`benchmarks/notes.md`, not this page. The work is `seed-5x2000`: five agents, 2,000 tokens in common, a task
of 60 each, three calls of 64 greedy tokens, tool results of 80, token ids from a seed, no tool time.
"""


def write_document(folder: Path, results: Path) -> Path | None:
    """benchmarks.md in `folder` from the last session of every file of results; None when there is none."""
    sessions = [found for path in sorted(results.glob("*.jsonl")) if (found := last_session(path))]
    # The model that the goals are for comes first.
    sessions.sort(key=lambda session: session.about["shape"] != MAIN_SHAPE)
    if not sessions:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "benchmarks.md"
    path.write_text(document(sessions))
    return path


def document(sessions: Sequence[Session]) -> str:
    # Measurements of other kinds add a section of their own.
    texts = [NOTES, *sorted(NOTES.parent.glob("*/notes.md")), METHOD]
    parts = [_HEAD, *(part for session in sessions for part in _session(session))]
    parts += [path.read_text().strip() + "\n" for path in texts]
    return "\n".join(part for part in parts if part)


def _session(session: Session) -> list[str]:
    latest = session.latest("own")
    own = BenchReport.model_validate(latest["report"]) if latest else None
    table = rows(session.runs)
    is_main = session.about["shape"] == MAIN_SHAPE
    return [
        _conditions(session, own),
        _goals(goals(own, table) if is_main else further_goals(table)),
        _peers(table),
        _failures(session),
        _ahead(where_ahead(table)),
        _own(own),
    ]


def _conditions(session: Session, own: BenchReport | None) -> str:
    about = session.about
    tier = f", tier {own.tier}" if own else ""
    has = "computes" if about["has_bf16"] else "does not compute"
    began, ended = (session.lines[place]["at"][:16] for place in (0, -1))
    text = (
        f"## {about['shape']}, {about['dtype']}\n\n"
        f"{about['cpu']}, {about['cores']} cores, {about['threads']} threads, {about['os']}; commit "
        f"{about['commit']}{tier}; measured {began} to {ended} UTC. This processor {has} bfloat16 itself."
    )
    if not about["has_bf16"]:
        text += (
            " The goals were set on one that does, where every engine keeps weights in half the bytes and "
            "multiplies at twice the rate. Here all compute in float32: ratios compare like with like, "
            "times are not those of the goals' machine."
        )
    return text + "\n"


def _goals(figures: Sequence[Figure]) -> str:
    lines = ["| figure | here | reach | aim | reached | |", "|---|---|---|---|---|---|"]
    for figure in figures:
        sign = "<=" if figure.lower else ">="
        value = "not measured" if figure.value is None else f"**{figure.value:.3g}** {figure.unit}".strip()
        goal = [f"{sign} {bound:g} {figure.unit}".strip() for bound in (figure.reach, figure.aim)]
        lines.append(
            f"| {figure.title} | {value} | {goal[0]} | {goal[1]} | {figure.reached} | {figure.note} |"
        )
    return "\n".join(lines) + "\n"


def _peers(table: Mapping[str, Row]) -> str:
    if not table:
        return ""
    columns = (
        *("engine", "mode", "wall s, median (min to max; n)", "against its own naive run"),
        *("TTFT of the last agent s", "ITL ms", "ITL p95 ms", "peak MB", "prompt tokens from cache"),
        "same tokens as ours",
    )
    lines = ["### Engines\n", _line(columns), "|---" * len(columns) + "|"]
    ours = table.get(f"{OURS}/paged")
    for config, row in table.items():
        is_same = "" if ours is None else "yes" if row.output_sha256 == ours.output_sha256 else "no"
        lines.append(_line([*_cells(row, reduction_percent(row, config, table)), is_same]))
    if any(row.others_percent > OTHERS_PERCENT_MAX for row in table.values()):
        lines.append(f"\n\\* others used more than {OTHERS_PERCENT_MAX:g} % of the machine: not to be quoted")
    return "\n".join(lines) + "\n"


def _cells(row: Row, less_percent: float | None) -> list[str]:
    mark = "\\*" if row.others_percent > OTHERS_PERCENT_MAX else ""
    return [
        f"{row.peer} {row.version}",
        row.mode,
        f"{row.wall_s:.2f} ({min(row.walls_s):.2f} to {max(row.walls_s):.2f}; {len(row.walls_s)}){mark}",
        "" if less_percent is None else f"{-less_percent:.1f} %",
        f"{row.ttft_last_s:.2f}",
        f"{row.itl_p50_ms:.1f}",
        f"{row.itl_p95_ms:.1f}",
        f"{row.peak_mb:.0f}",
        "not said" if row.cached_tokens is None else f"{row.cached_tokens} of {row.prompt_tokens}",
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _failures(session: Session) -> str:
    lines = [
        f"- {line['peer']} could not be installed or prepared here: `{_short(line['error'])}`"
        for line in session.lines
        if line["kind"] == "not_installed"
    ]
    errors = {line["config"]: line["error"] for line in session.runs if line["result"] is None}
    worked = {line["config"] for line in session.runs if line["result"] is not None}
    lines += [
        f"- {config} failed: `{_short(error)}`" for config, error in errors.items() if config not in worked
    ]
    return "### What did not run\n\n" + "\n".join(lines) + "\n" if lines else ""


def _short(error: str) -> str:
    """The last words, which say what was wrong, as one line."""
    return " ".join(error.split())[-300:].replace("`", "'")


def _ahead(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    return "### Where a peer is ahead\n\n" + "\n".join(f"- {each}" for each in sentences) + "\n"


def _own(own: BenchReport | None) -> str:
    if own is None:
        return ""
    modes = list(own.arms)
    lines = [
        "### Our arms\n",
        "| | " + " | ".join(modes) + " |",
        "|---|" + "---|" * len(modes),
        *(f"| {title} | " + " | ".join(cells) + " |" for title, cells in _arm_rows([*own.arms.values()])),
    ]
    rates = own.bound
    lines.append(
        f"\nBound of the work {rates.wall_s:.2f} s: from {rates.read_bandwidth_bytes_per_s / 1e9:.1f} GB/s "
        f"and {rates.matrix_product_flops / 1e9:.0f} GFLOP/s in matrix products, measured beside it. "
        f"Others used at most {own.others_cpu_percent:.1f} % of the machine in a counted run."
    )
    if own.contaminated_runs:
        lines.append(
            f"{own.contaminated_runs} counted runs were above the limit: these are not to be quoted."
        )
    if own.outputs_agree is False:
        lines.append("The arms did not all write the same tokens.")
    return "\n".join(lines) + "\n"


def _arm_rows(arms: Sequence[ArmFigures]) -> list[tuple[str, list[str]]]:
    return [
        ("wall, s", [_spread(arm.wall_s) for arm in arms]),
        ("first token of the first agent, s", [_spread(arm.ttft_first_s) for arm in arms]),
        ("first token of the last agent, s", [_spread(arm.ttft_last_s) for arm in arms]),
        ("inter-token latency, ms", [_spread(arm.itl_p50_ms) for arm in arms]),
        ("inter-token latency p95, ms", [_spread(arm.itl_p95_ms) for arm in arms]),
        ("prompt tokens computed", [f"{arm.prompt_tokens_computed}" for arm in arms]),
        ("KV hit rate by token", [f"{arm.kv_hit_rate_tokens:.3f}" for arm in arms]),
        ("peak footprint, MB", [f"{arm.peak_footprint_mb:.0f}" for arm in arms]),
    ]


def _spread(value: Spread) -> str:
    return f"{value.median:.2f} ({value.min:.2f} to {value.max:.2f}; {value.n})"
