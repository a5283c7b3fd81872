"""How many prompt tokens a step may compute beside decodes, learned from how long steps took (B4).

Pure: durations come from outside. A step of as many decodes without prefill is measured too; every answer
is relative to that. The next chunk is the last one scaled along the line from there to what it took: where a
step with prefill has a fixed cost that line is too steep, and chunks grow towards the target from below.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from runtime.schedule.config import SchedulerConfig

MIN_TOKENS: Final = 4
"""Fewer than this are never asked for: a prompt must come to its end."""
MEASURE_AGAIN_STEPS: Final = 64
"""After so many steps with prefill, one step decodes alone, to be measured."""
_KEPT: Final = 3
"""One slow step among so many changes nothing."""
_GROWTH: Final = 2.0
_FIRST_SHARE: Final = 0.5
"""Of what the idle chunks promise: small chunks cost more a token than large ones."""


@dataclass(slots=True)
class _Beside:
    """What was seen of steps with a certain number of decodes; durations in ns."""

    alone: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    chunks: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    least: float | None = None
    """The shortest step with a chunk of the least size."""
    missed: int = 0
    """Targets that even the least chunk missed since decodes were measured alone."""
    steps_since_alone: int = 0

    def decode(self) -> float:
        """A step without prefill. One with prefill is never shorter: a slow first step is forgotten."""
        return min([median(self.alone), *(duration for _, duration in self.chunks)])

    def target(self, config: SchedulerConfig) -> float:
        """How long a step with prefill may last."""
        if self.missed == 0 or self.least is None:
            return config.stretch_aim * self.decode()
        if self.missed == 1:
            return config.stretch_bound * self.decode()
        # The wait is beyond all limits whatever the chunk: then few waits, and chunks that pay.
        return 2 * self.least


class PrefillPace:
    """Tokens of prefill for the next step, so that a decode waits no longer than the configuration says.

    Until the first observation the configured limit holds as it is.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._least_tokens = min(MIN_TOKENS, config.prefill_tokens)
        self._idle_token_ns: float | None = None
        self._by_decodes: dict[int, _Beside] = {}

    def observe(self, decodes: int, prefill_tokens: int, duration_ns: int) -> None:
        """A step of so many decodes and prompt tokens took `duration_ns`."""
        if not decodes:
            if prefill_tokens:
                self._idle_token_ns = duration_ns / prefill_tokens
            return
        seen = self._by_decodes.setdefault(decodes, _Beside())
        if not prefill_tokens:
            seen.alone.append(duration_ns)
            seen.steps_since_alone = seen.missed = 0
            return
        seen.steps_since_alone += 1
        seen.chunks.append((prefill_tokens, duration_ns))
        if prefill_tokens <= self._least_tokens and seen.alone:
            seen.missed += duration_ns > seen.target(self._config)
            seen.least = min(seen.least or duration_ns, duration_ns)

    def tokens_beside(self, decodes: int) -> int:
        """At most so many prompt tokens beside `decodes` decodes; 0: this step is to be measured without.

        The aim is a step of `stretch_aim` times one without prefill. Where even the least chunk takes longer
        it is `stretch_bound`, and where that fails too, chunks as large as makes their fixed cost pay.
        """
        if not self._by_decodes and self._idle_token_ns is None:
            return self._config.prefill_tokens
        seen = self._by_decodes.setdefault(decodes, _Beside())
        if not seen.alone or seen.steps_since_alone >= MEASURE_AGAIN_STEPS:
            return 0
        return int(max(self._least_tokens, min(self._config.prefill_tokens, self._wanted(seen))))

    def _wanted(self, seen: _Beside) -> float:
        decode_ns = seen.decode()
        room_ns = seen.target(self._config) - decode_ns
        if not seen.chunks:
            return _FIRST_SHARE * room_ns / self._idle_token_ns if self._idle_token_ns else MIN_TOKENS
        token_ns = median((duration - decode_ns) / tokens for tokens, duration in seen.chunks)
        most = _GROWTH * seen.chunks[-1][0]
        return min(most, room_ns / token_ns) if token_ns > 0 else most
