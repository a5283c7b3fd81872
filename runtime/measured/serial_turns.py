"""The order of the serial arms: one agent after the other, one call at a time.

`serial` computes every prompt from its first token in a contiguous cache; `serial_cached` keeps the same
order in front of the paged engine and its prefix cache.
"""

import time
from collections.abc import Callable, Sequence

from runtime.engine.generator import CallDone, CallRequest, Fact, Generator, KVState


class SerialTurns:
    """Lets agents into `inner` one after the other, higher priority first, then in the workload's order.

    An agent keeps its turn to its end, also while its tool works; it gives way only while it needs a call of
    another agent. `gives_way(agent)` says so.
    """

    def __init__(self, inner: Generator, order: Sequence[str], gives_way: Callable[[str], bool]) -> None:
        self._inner = inner
        self._order = tuple(order)
        self._gives_way = gives_way
        self._queued: dict[str, CallRequest] = {}
        self._turn: str | None = None

    @property
    def has_work(self) -> bool:
        """False while the agent whose turn it is waits for its tool."""
        return self._inner.has_work or self._next() is not None

    def check(self, request: CallRequest) -> None:
        """As the inner generator."""
        self._inner.check(request)

    def submit(self, request: CallRequest) -> None:
        """Queues the call until its agent's turn."""
        self._queued[request.key.agent] = request

    def step(self) -> list[Fact]:
        """A step of the call that runs, or of the next one."""
        if not self._inner.has_work:
            self._turn = self._next()
            if self._turn is None:
                return []
            request = self._queued.pop(self._turn)
            self._inner.submit(request)
        return self._inner.step()

    def kv_state(self) -> KVState | None:
        """The inner generator's pool."""
        return self._inner.kv_state()

    def cancel(self) -> list[Fact]:
        """Ends the call that runs; queued ones end without having begun."""
        now_ns = time.monotonic_ns()
        queued = [
            CallDone(request.key, now_ns, "cancelled", (), len(request.prompt), 0, 0)
            for request in self._queued.values()
        ]
        self._queued.clear()
        return [*self._inner.cancel(), *queued]

    def close(self) -> None:
        """Frees the inner generator's tensors."""
        self._inner.close()

    def _next(self) -> str | None:
        """Whose queued call is next; None when the agent with the turn keeps it and has none queued."""
        if self._turn is not None and not self._gives_way(self._turn):
            return self._turn if self._turn in self._queued else None
        return next((agent for agent in self._order if agent in self._queued), None)
