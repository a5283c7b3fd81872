"""SIGTERM and SIGINT as a wish to end in order."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def cancelling_on_signals(cancel: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `cancel`, which may take no lock; handlers are as before at the end."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: cancel()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
