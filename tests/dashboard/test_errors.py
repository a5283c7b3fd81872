"""Every error of a page says what happened and what to do."""

import pytest

from contract.problems import PROBLEM_TYPE_PREFIX, PROBLEMS, Problem, ProblemCode
from dashboard.errors import dashboard_error_of, not_found, not_signed_in
from rest import errors


def _problem(code: ProblemCode) -> Problem:
    kind = PROBLEMS[code]
    return Problem(
        type=PROBLEM_TYPE_PREFIX + code,
        title=code,
        status=kind.status,
        detail="the store is busy; ask again",
        code=code,
        fault=kind.fault,
        retryable=kind.retryable,
    )


@pytest.mark.parametrize(
    "error",
    [
        errors.ControllerUnreachableError("no answer within 5 s"),
        errors.UnexpectedAnswerError("no RunView"),
        errors.SettingError("bad-address", "'x' is not the address of a controller"),
        errors.TokenRefusedError(_problem(ProblemCode.FORBIDDEN)),
        errors.TokenRefusedError(_problem(ProblemCode.NOT_AUTHENTICATED)),
        errors.NotFoundError(_problem(ProblemCode.RUN_NOT_FOUND)),
        errors.RefusedError(_problem(ProblemCode.RESULT_NOT_READY)),
        errors.ControllerFailedError(_problem(ProblemCode.STORE_BUSY), None),
    ],
    ids=lambda error: f"{type(error).__name__} {error.code}",
)
def test_every_error_has_a_headline_and_advice_that_are_sentences(error: errors.RestError) -> None:
    shown = dashboard_error_of(error, "the list of runs")
    for text in (shown.headline, shown.advice):
        assert text.endswith(".")
        assert text[0].isupper() or text.startswith("'")


def test_what_passes_by_itself_is_known_and_who_must_sign_in() -> None:
    busy = errors.ControllerFailedError(_problem(ProblemCode.STORE_BUSY), None)
    assert dashboard_error_of(busy, "x").will_pass
    final = errors.NotComparableError(_problem(ProblemCode.NOT_COMPARABLE))
    assert not dashboard_error_of(final, "x").will_pass
    assert not_signed_in().by_signing_in
    assert not not_found("run run_1").by_signing_in
