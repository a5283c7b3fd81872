"""What can keep a page from showing its data: a headline, and what the person can do."""

from contract.problems import ProblemCode
from dashboard.wording import sentence
from rest.errors import (
    ControllerUnreachableError,
    NotFoundError,
    RestError,
    TokenRefusedError,
    UnavailableError,
    UnexpectedAnswerError,
)

_SIGN_IN = "Sign in with a token; dynofarm up writes one to the file admin-token in its home folder."


class DashboardError(Exception):
    """`headline` names what happened; `advice` says what to do about it. code: that of the RestError, if any.

    will_pass: asking again, without anybody doing anything, may help. by_signing_in: another token may.
    """

    def __init__(self, headline: str, advice: str, code: str = "") -> None:
        """Both are shown as they are, so neither holds a token or a cookie."""
        super().__init__(f"{headline} {advice}")
        self.headline = headline
        self.advice = advice
        self.code = code
        self.will_pass = False
        self.by_signing_in = False


def not_signed_in() -> DashboardError:
    """The viewer has no session, or one that has ended."""
    error = DashboardError("You are not signed in.", _SIGN_IN, ProblemCode.NOT_AUTHENTICATED)
    error.by_signing_in = True
    return error


def not_found(what: str, detail: str = "") -> DashboardError:
    """`what` such as `run run_01H...`; `detail` is the controller's own sentence, where it gave one."""
    advice = f"{detail or 'Check the address.'} The lists of runs and devices show what there is."
    return DashboardError(f"There is no {what}.", advice, ProblemCode.NOT_FOUND)


def dashboard_error_of(error: RestError, what: str) -> DashboardError:
    """The error in a page's words; `what` was asked for."""
    if error.code == ProblemCode.NOT_AUTHENTICATED:
        return not_signed_in()
    if isinstance(error, NotFoundError):
        return not_found(what, sentence(error.detail))
    found = DashboardError(*_words(error, what), error.code)
    found.by_signing_in = isinstance(error, TokenRefusedError)
    found.will_pass = error.retryable or isinstance(error, UnavailableError)
    return found


def _words(error: RestError, what: str) -> tuple[str, str]:
    match error:
        case TokenRefusedError():
            advice = f"{sentence(error.detail)} Sign in with another token."
            return "Your token does not allow this.", advice
        case ControllerUnreachableError():
            advice = "The page tries again by itself; if this stays, read the controller's log."
            return "The controller does not answer.", f"{sentence(error.detail)} {advice}"
        case UnexpectedAnswerError():
            advice = "Install the same dynofarm version everywhere; if it is the same, report this."
            return f"The controller's answer for {what} is not what this dashboard expects.", advice
    return sentence(error.code.replace("-", " ")), sentence(error.detail)
