"""What others wrote is shown as they wrote it, in the live display too."""

from io import StringIO

from rich.console import Console

from client.follow import RunProgress
from client.progress import ProgressBars
from client.trial_tally import TrialTally
from contract.rest import JobView, RunView
from contract.states import RunState


def test_a_reason_that_looks_like_markup_does_not_end_the_display() -> None:
    waiting = JobView.model_construct(waiting_reason="d1 is quarantined: [/x] [red]", attempts=[])
    run = RunView.model_construct(state=RunState.ACTIVE, outcome=None, jobs=[waiting])
    shown = StringIO()
    with ProgressBars(Console(file=shown, force_terminal=True, width=200), None) as bars:
        bars.update(RunProgress(run, None, TrialTally()))
    assert "quarantined: [/x] [red]" in shown.getvalue()
