"""Every typed error of the controller has a problem code of its own, and every code is explained."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from contract.problems import PROBLEMS, ProblemCode


def _descendants(error: type[Exception]) -> Iterator[type[Exception]]:
    for child in error.__subclasses__():
        yield child
        yield from _descendants(child)


def _without_code(root: type[Exception]) -> list[str]:
    """Names of errors that say no code themselves, or one that another error says too."""
    seen: set[Any] = set()
    wrong = []
    for error in _descendants(root):
        code = vars(error).get("kind")
        if not isinstance(code, ProblemCode) or code in seen:
            wrong.append(error.__name__)
        seen.add(code)
    return wrong


def _farm_error() -> type[Exception]:
    import controller

    for module in pkgutil.walk_packages(controller.__path__, "controller."):
        importlib.import_module(module.name)
    root: type[Exception] = importlib.import_module("controller.errors").FarmError
    return root


def test_every_farm_error_has_a_code_of_its_own() -> None:
    root = _farm_error()
    assert len(list(_descendants(root))) > 20
    assert _without_code(root) == []


def test_every_code_is_explained_and_is_somebody_s() -> None:
    assert set(PROBLEMS) == set(ProblemCode)
    said = {vars(error)["kind"] for error in _descendants(_farm_error())}
    # What the framework refuses before any of our code runs.
    framework = {ProblemCode.BAD_REQUEST, ProblemCode.METHOD_NOT_ALLOWED, ProblemCode.INTERNAL}
    assert set(ProblemCode) - said == framework


def test_an_error_without_a_code_of_its_own_is_found() -> None:
    class RootError(Exception):
        kind = ProblemCode.INTERNAL

    class KnownError(RootError):
        kind = ProblemCode.FENCED

    class NarrowerError(KnownError): ...

    class SecondError(RootError):
        kind = ProblemCode.FENCED

    assert _without_code(RootError) == ["NarrowerError", "SecondError"]
    assert KnownError.kind is SecondError.kind
