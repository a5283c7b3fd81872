"""Wall time, pair by pair."""

from contract.rest import PairView
from dashboard.figures.pairs import paired_wall_figure
from tests.fakes import dashboard_story as story

ARMS = ["serial", "paged"]


def test_both_arms_of_a_pair_are_joined() -> None:
    pairs = [PairView(pair=i, wall_s={"serial": 10.0 + i, "paged": 4.0}) for i in (1, 2)]
    figure = paired_wall_figure(story.device_report(1, pairs=pairs), ARMS)
    joins, serial, paged = figure.data
    assert (list(joins.x), list(joins.y)) == ([1, 1, None, 2, 2, None], [4.0, 11.0, None, 4.0, 12.0, None])
    assert (serial.name, list(serial.y)) == ("serial", [11.0, 12.0])
    assert (paged.name, list(paged.y)) == ("paged", [4.0, 4.0])
    assert figure.layout.yaxis.title.text == "wall time (s)"
    assert figure.layout.xaxis.title.text == "pair (in the order measured)"
    assert figure.layout.yaxis.rangemode == "tozero"


def test_an_arm_that_did_not_complete_leaves_its_partner_alone() -> None:
    pairs = [
        PairView(pair=1, wall_s={"serial": 11.0}),
        PairView(pair=2, wall_s={"serial": 9.0, "paged": 4.0}),
    ]
    joins, serial, paged = paired_wall_figure(story.device_report(1, pairs=pairs), ARMS).data
    assert list(joins.x) == [2, 2, None]
    assert list(serial.x) == [1, 2]
    assert list(paged.x) == [2]


def test_an_arm_without_a_time_is_not_drawn() -> None:
    pairs = [PairView(pair=1, wall_s={"paged": 4.0})]
    figure = paired_wall_figure(story.device_report(1, pairs=pairs), ARMS)
    assert [trace.name for trace in figure.data if trace.name] == ["paged"]


def test_without_a_completed_trial_the_figure_says_so() -> None:
    figure = paired_wall_figure(story.device_report(1, pairs=[]), ARMS)
    assert "No pair has a completed trial" in figure.layout.annotations[0].text


def test_two_hundred_pairs_do_not_have_two_hundred_ticks() -> None:
    pairs = [PairView(pair=i, wall_s={"serial": 1.0, "paged": 1.0}) for i in range(1, 201)]
    assert paired_wall_figure(story.device_report(1, pairs=pairs), ARMS).layout.xaxis.dtick >= 10
