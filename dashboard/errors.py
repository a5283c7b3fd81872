"""What can keep a page from showing its data. Each error has a headline and says what the person can do."""

from http import HTTPStatus

from contract.problems import Problem
from dashboard.wording import sentence


class DashboardError(Exception):
    """Parent of all. `headline` names what happened; `advice` says what to do about it."""

    will_pass: bool = False
    """Asking again, without anybody doing anything, may help."""

    def __init__(self, headline: str, advice: str) -> None:
        """Both are shown as they are, so neither holds a token or a cookie."""
        super().__init__(f"{headline} {advice}")
        self.headline = headline
        self.advice = advice


class NotSignedInError(DashboardError):
    """The viewer has no session, or one that has ended."""

    def __init__(self) -> None:
        """Sign-in is the controller's page."""
        super().__init__(
            "You are not signed in.",
            "Sign in with a token; dynofarm up writes one to the file admin-token in its home folder.",
        )


class NotAllowedError(DashboardError):
    """The viewer's token does not include this."""

    def __init__(self, detail: str) -> None:
        """`detail` is the controller's own sentence."""
        super().__init__("Your token does not allow this.", f"{detail} Sign in with another token.")


class NotFoundError(DashboardError):
    """The controller has nothing under this id."""

    def __init__(self, what: str, detail: str = "") -> None:
        """`what` such as `run run_01H...`; `detail` is the controller's own sentence, where it gave one."""
        super().__init__(
            f"There is no {what}.",
            f"{detail or 'Check the address.'} The lists of runs and devices show what there is.",
        )


class ControllerUnreachableError(DashboardError):
    """No answer in time, or none that is HTTP."""

    will_pass = True

    def __init__(self, detail: str) -> None:
        """`detail` says how the call failed."""
        super().__init__(
            f"The controller does not answer: {detail}.",
            "The page tries again by itself; if this stays, read the controller's log.",
        )


class RefusedError(DashboardError):
    """The controller answered with a problem document; `problem` is kept for pages that can go on from it."""

    def __init__(self, problem: Problem) -> None:
        """The document's own detail says what to do."""
        super().__init__(sentence(problem.title), sentence(problem.detail))
        self.problem = problem
        self.will_pass = problem.retryable or problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR


class UnexpectedAnswerError(DashboardError):
    """An answer that the contract does not know."""

    def __init__(self, what: str) -> None:
        """`what` was asked for."""
        super().__init__(
            f"The controller's answer for {what} is not what this dashboard expects.",
            "Install the same dynofarm version everywhere; if it is the same, report this.",
        )
