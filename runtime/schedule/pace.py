"""How many prompt tokens a step may compute beside decodes, learned from how long steps took.

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
_SAMPLES_KEPT: Final = 3
"""One slow step among so many changes nothing."""
_GROWTH: Final = 2.0
_FIRST_SHARE: Final = 0.5
"""Of what the idle chunks promise: small chunks cost more a token than large ones."""


@dataclass(slots=True)
class _MeasuredSteps:
    """Steps with a certain number of decodes; durations in ns."""

    without_prefill: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES_KEPT))
    chunks: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_SAMPLES_KEPT))
    shortest_ns: float | None = None
    """The shortest step with a chunk of the smallest size."""
    targets_missed: int = 0
    """Targets that even the smallest chunk missed since decodes were measured without prefill."""
    steps_since_without_prefill: int = 0

    def decode_ns(self) -> float:
        """A step without prefill. One with prefill is never shorter: a slow first step is forgotten."""
        return min([median(self.without_prefill), *(duration for _, duration in self.chunks)])

    def target_ns(self, config: SchedulerConfig) -> float:
        """How long a step with prefill may last."""
        if self.targets_missed == 0 or self.shortest_ns is None:
            return config.stretch_aim * self.decode_ns()
        if self.targets_missed == 1:
            return config.stretch_bound * self.decode_ns()
        # The wait is beyond all limits whatever the chunk: then few waits, and chunks that pay.
        return 2 * self.shortest_ns


class PrefillPace:
    """Tokens of prefill for the next step, so that a decode waits no longer than the configuration says.

    Until the first observation the configured limit holds as it is.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._min_tokens = min(MIN_TOKENS, config.prefill_tokens)
        self._idle_token_ns: float | None = None
        self._by_decodes: dict[int, _MeasuredSteps] = {}

    def observe(self, decodes: int, prefill_tokens: int, duration_ns: int) -> None:
        """A step of so many decodes and prompt tokens took `duration_ns`."""
        if not decodes:
            if prefill_tokens:
                self._idle_token_ns = duration_ns / prefill_tokens
            return
        measured = self._by_decodes.setdefault(decodes, _MeasuredSteps())
        if not prefill_tokens:
            measured.without_prefill.append(duration_ns)
            measured.steps_since_without_prefill = measured.targets_missed = 0
            return
        measured.steps_since_without_prefill += 1
        measured.chunks.append((prefill_tokens, duration_ns))
        if prefill_tokens <= self._min_tokens and measured.without_prefill:
            measured.targets_missed += duration_ns > measured.target_ns(self._config)
            measured.shortest_ns = min(measured.shortest_ns or duration_ns, duration_ns)

    def tokens_beside(self, decodes: int) -> int:
        """At most so many prompt tokens beside `decodes` decodes; 0: this step is to be measured without.

        The aim is a step of `stretch_aim` times one without prefill. Where even the least chunk takes longer
        it is `stretch_bound`, and where that fails too, chunks as large as makes their fixed cost pay.
        """
        if not self._by_decodes and self._idle_token_ns is None:
            return self._config.prefill_tokens
        measured = self._by_decodes.setdefault(decodes, _MeasuredSteps())
        if not measured.without_prefill or measured.steps_since_without_prefill >= MEASURE_AGAIN_STEPS:
            return 0
        return int(
            max(self._min_tokens, min(self._config.prefill_tokens, self._tokens_within_target(measured)))
        )

    def _tokens_within_target(self, measured: _MeasuredSteps) -> float:
        decode_ns = measured.decode_ns()
        room_ns = measured.target_ns(self._config) - decode_ns
        if not measured.chunks:
            return _FIRST_SHARE * room_ns / self._idle_token_ns if self._idle_token_ns else MIN_TOKENS
        token_ns = median((duration - decode_ns) / tokens for tokens, duration in measured.chunks)
        most = _GROWTH * measured.chunks[-1][0]
        return min(most, room_ns / token_ns) if token_ns > 0 else most
