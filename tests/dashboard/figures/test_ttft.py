"""Time to first token, agent by agent."""

from contract.rest import Spread
from dashboard.figures.theme import Subject
from dashboard.figures.ttft import MAX_AGENTS, live_ttft_figure, ttft_spread_figure
from tests.fakes import dashboard_story as story

HOST = Subject("bench-host", "x86_64 (2 cores)", virtual=False)
ARMS = ["serial", "paged"]


def _traces(figure: object) -> dict[str, object]:
    return {trace.name: trace for trace in figure.data if trace.name}


def test_each_arm_has_a_point_for_each_agent_in_ms() -> None:
    live = story.live_view(agent_ttft_ms={"paged": {"a": 10.0, "b": 20.0}, "serial": {"a": 30.0, "b": 90.0}})
    figure = live_ttft_figure(live, ARMS, HOST)
    drawn = _traces(figure)
    assert list(drawn) == ARMS, "the baseline comes first"
    assert list(drawn["serial"].x) == [30.0, 90.0]
    assert list(drawn["paged"].x) == [10.0, 20.0]
    assert figure.layout.xaxis.title.text == "time to first token (ms)"
    assert list(figure.layout.yaxis.ticktext) == ["a", "b"]


def test_the_arms_of_an_agent_are_joined() -> None:
    live = story.live_view(agent_ttft_ms={"serial": {"a": 30.0, "b": 5.0}, "paged": {"a": 10.0}})
    joins = live_ttft_figure(live, ARMS, HOST).data[0]
    assert list(joins.x) == [10.0, 30.0, None]


def test_the_report_shows_the_median_with_its_span() -> None:
    arm = story.arm_report("paged", 1)
    spread = Spread(median=100.0, min=90.0, max=130.0, n=5)
    report = story.device_report(1, arms={"paged": arm.model_copy(update={"agent_ttft_ms": {"a": spread}})})
    (trace,) = _traces(ttft_spread_figure(report, ARMS)).values()
    assert list(trace.x) == [100.0]
    assert list(trace.error_x.array) == [30.0]
    assert list(trace.error_x.arrayminus) == [10.0]
    assert trace.text[0] == "a, paged: 100 ms, 90 to 130 over 5 trials"


def test_of_too_many_agents_the_slowest_are_shown_and_the_figure_says_so() -> None:
    waits = {f"agent-{i:03d}": float(i) for i in range(MAX_AGENTS + 10)}
    figure = live_ttft_figure(story.live_view(agent_ttft_ms={"paged": waits}), ARMS, HOST)
    assert len(figure.layout.yaxis.ticktext) == MAX_AGENTS
    assert figure.layout.yaxis.ticktext[0] == f"agent-{MAX_AGENTS + 9:03d}"
    title = figure.layout.title.text.replace("</b><br><b>", " ")
    assert f"({MAX_AGENTS} of {MAX_AGENTS + 10}, slowest)" in title


def test_without_a_first_token_the_figure_says_so() -> None:
    figure = live_ttft_figure(story.nothing_live(), ARMS, HOST)
    assert "No agent has written its first token yet." in figure.layout.annotations[0].text


def test_an_arm_that_was_not_asked_for_is_drawn_last() -> None:
    live = story.live_view(agent_ttft_ms={"serial_cached": {"a": 1.0}, "paged": {"a": 2.0}})
    assert list(_traces(live_ttft_figure(live, ARMS, HOST))) == ["paged", "serial_cached"]
