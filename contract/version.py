"""The version of everything in this package.

Changed whenever a field of a released version is: model, schema, vectors, Swift and this number go in one
commit (docs/adr/0001). 1.0 is that of the first release, which is not out yet, and still grows; both sides
come from one checkout until then. A reader refuses a stream whose version it does not know.
"""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

CONTRACT_VERSION: Final = "1.0"
SUPPORTED_CONTRACT_VERSIONS: Final = frozenset({CONTRACT_VERSION})


@cache
def installed_version() -> str:
    """The version of this installation; "unknown" when it runs from a folder that was never installed."""
    try:
        return version("dynofarm")
    except PackageNotFoundError:
        return "unknown"


class ContractVersionError(ValueError):
    """A stream or body speaks a contract version that this build does not know."""

    def __init__(self, found: str) -> None:
        known = ", ".join(sorted(SUPPORTED_CONTRACT_VERSIONS))
        super().__init__(
            f"contract version {found!r} is not known here (known: {known}); "
            "install the same dynofarm version on both sides"
        )
        self.found = found


def require_supported(contract_version: str) -> None:
    """Return if `contract_version` is spoken here; raise ContractVersionError otherwise."""
    if contract_version not in SUPPORTED_CONTRACT_VERSIONS:
        raise ContractVersionError(contract_version)
