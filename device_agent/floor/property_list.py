"""Property lists from devices and files that nobody vouches for."""

import plistlib
from typing import Any


class PropertyListError(ValueError):
    """The bytes are not a property list."""


def parse_property_list(data: bytes) -> Any:
    """What is in it; PropertyListError for anything else, whatever the parsers below plistlib raise."""
    try:
        return plistlib.loads(data)
    except Exception as error:
        # expat's error is no ValueError, and the binary reader raises half a dozen classes on foreign bytes.
        raise PropertyListError(f"no property list: {type(error).__name__}") from error
