"""Every typed error of the controller has its HTTP status in the one table (docs/adr/0006)."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

TABLE_MODULE = "controller.api.problems"


def _descendants(error: type[Exception]) -> Iterator[type[Exception]]:
    for child in error.__subclasses__():
        yield child
        yield from _descendants(child)


def _status(error: type[Exception], table: Mapping[type[Exception], int]) -> int | None:
    """The status of the nearest class of the error that the table names, the root's own left out."""
    return next((table[parent] for parent in error.__mro__[:-1] if parent in table), None)


def test_every_farm_error_is_in_the_http_table() -> None:
    import controller

    for module in pkgutil.walk_packages(controller.__path__, "controller."):
        importlib.import_module(module.name)
    root = importlib.import_module("controller.errors").FarmError
    table = {
        error: status
        for error, status in importlib.import_module(TABLE_MODULE).STATUS.items()
        if error is not root
    }
    errors = list(_descendants(root))
    assert errors, "no error derives from FarmError"
    assert [error.__name__ for error in errors if _status(error, table) is None] == []


def test_an_error_that_the_table_lacks_is_found() -> None:
    class RootError(Exception): ...

    class KnownError(RootError): ...

    class NarrowerError(KnownError): ...

    class ForgottenError(RootError): ...

    assert [_status(error, {KnownError: 404}) for error in _descendants(RootError)] == [404, 404, None]
