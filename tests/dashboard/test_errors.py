"""Every error of a page says what happened and what to do."""

import inspect

from contract.failures import Fault
from contract.problems import Problem
from dashboard import errors

PROBLEM = Problem(
    type="urn:dynofarm:problem:store-busy",
    title="store busy",
    status=409,
    detail="the store is busy; ask again",
    code="store-busy",
    fault=Fault.LAB,
    retryable=True,
)


def test_every_error_has_a_headline_and_advice_that_are_sentences() -> None:
    made = [
        errors.NotSignedInError(),
        errors.NotAllowedError("this needs the scope viewer."),
        errors.NotFoundError("run run_1"),
        errors.ControllerUnreachableError("no answer within 5 s"),
        errors.RefusedError(PROBLEM),
        errors.UnexpectedAnswerError("the list of runs"),
    ]
    kinds = {
        kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__
    }
    assert {type(error) for error in made} == kinds - {errors.DashboardError}
    for error in made:
        assert error.headline.endswith(".")
        assert error.advice.endswith(".")
        assert error.headline[0].isupper()


def test_a_refusal_that_may_be_tried_again_will_pass() -> None:
    assert errors.RefusedError(PROBLEM).will_pass
    final = PROBLEM.model_copy(update={"retryable": False})
    assert not errors.RefusedError(final).will_pass
