"""How long each agent waits for its first token, in every arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import plotly.graph_objects as go

from contract.rest import DeviceReportView, LiveView, Spread
from dashboard.figures.sketch import Sketch, empty_figure
from dashboard.figures.theme import GRID, ArmStyle, Subject, arm_styles, number, plain, subject_of

MAX_AGENTS: Final = 40
_ROW_PX: Final = 30
_FRAME_PX: Final = 140
_X_TITLE: Final = "time to first token (ms)"
_TITLE: Final = "Time to first token, agent by agent"


@dataclass(frozen=True, slots=True)
class _Wait:
    """One agent in one arm, in ms; low and high are its spread over trials."""

    agent: str
    middle: float
    low: float
    high: float
    trials: int


def live_ttft_figure(live: LiveView, arms: Sequence[str], subject: Subject) -> go.Figure:
    """TTFT of the newest trial of each arm, counted from the trial's start. `arms`: the baseline first."""
    waits = {
        arm: [_Wait(agent, ms, ms, ms, 1) for agent, ms in by_agent.items()]
        for arm, by_agent in live.agent_ttft_ms.items()
    }
    message = "No agent has written its first token yet."
    return _figure(waits, _in_order(arms, waits), subject, message)


def ttft_spread_figure(report: DeviceReportView, arms: Sequence[str]) -> go.Figure:
    """Median TTFT over trials with the line from the smallest to the greatest. `arms`: the baseline first."""
    waits = {
        name: [_wait(agent, spread) for agent, spread in arm.agent_ttft_ms.items()]
        for name, arm in report.arms.items()
    }
    message = "No completed trial has a first token: see the failures of this run."
    return _figure(waits, _in_order(arms, waits), subject_of(report), message)


def _wait(agent: str, spread: Spread) -> _Wait:
    return _Wait(agent, spread.median, spread.min, spread.max, spread.n)


def _in_order(arms: Sequence[str], waits: Mapping[str, object]) -> list[str]:
    """Known arms first and in their order, then any other."""
    return [arm for arm in arms if arm in waits] + [arm for arm in waits if arm not in arms]


def _figure(
    waits: Mapping[str, Sequence[_Wait]], arms: Sequence[str], subject: Subject, message: str
) -> go.Figure:
    agents = _agents(waits)
    if not agents:
        return empty_figure(_TITLE, subject, message)
    shown = agents[:MAX_AGENTS]
    cut = f" ({len(shown)} of {len(agents)}, slowest)" if len(shown) < len(agents) else ""
    styles = arm_styles(arms)
    sketch = Sketch(_TITLE + cut, subject, [style.key for style in styles.values()])
    sketch.axes(_X_TITLE, "")
    sketch.x_axis(rangemode="tozero", showgrid=True)
    rows = {agent: row for row, agent in enumerate(shown)}
    sketch.y_axis(tickmode="array", tickvals=list(rows.values()), ticktext=[plain(agent) for agent in rows])
    sketch.y_axis(range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False, automargin=True)
    sketch.grow(_FRAME_PX + _ROW_PX * len(rows))
    _join_arms(sketch, waits, rows)
    for arm in arms:
        _draw_arm(sketch, [wait for wait in waits[arm] if wait.agent in rows], styles[arm], rows)
    return sketch.figure()


def _agents(waits: Mapping[str, Sequence[_Wait]]) -> list[str]:
    """By name where all fit, since that is the order of a workload; else the slowest first."""
    slowest: dict[str, float] = {}
    for row in waits.values():
        for wait in row:
            slowest[wait.agent] = max(wait.middle, slowest.get(wait.agent, wait.middle))
    if len(slowest) > MAX_AGENTS:
        return sorted(slowest, key=lambda agent: (-slowest[agent], agent))
    return list(slowest)


def _join_arms(sketch: Sketch, waits: Mapping[str, Sequence[_Wait]], rows: Mapping[str, int]) -> None:
    """A thick line from an agent's quickest arm to its slowest: its length is what the arms differ by."""
    xs: list[float | None] = []
    ys: list[int | None] = []
    for agent, row in rows.items():
        middles = [wait.middle for arm in waits.values() for wait in arm if wait.agent == agent]
        if len(middles) > 1:
            xs += [min(middles), max(middles), None]
            ys += [row, row, None]
    sketch.add(x=xs, y=ys, mode="lines", line={"color": GRID, "width": 6}, hoverinfo="skip")


def _draw_arm(sketch: Sketch, waits: Sequence[_Wait], style: ArmStyle, rows: Mapping[str, int]) -> None:
    sketch.add(
        x=[wait.middle for wait in waits],
        y=[rows[wait.agent] for wait in waits],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, wait.high - wait.middle) for wait in waits],
            "arrayminus": [max(0.0, wait.middle - wait.low) for wait in waits],
            **{"color": style.colour, "thickness": 1.5, "width": 4},
        },
        mode="markers",
        name=plain(style.arm),
        marker={"color": style.colour, "symbol": style.symbol, "size": 10},
        text=[_told(wait, style.arm) for wait in waits],
    )


def _told(wait: _Wait, arm: str) -> str:
    told = f"{wait.agent}, {arm}: {number(wait.middle)} ms"
    if wait.trials == 1:
        return told
    return f"{told}, {number(wait.low)} to {number(wait.high)} over {wait.trials} trials"
