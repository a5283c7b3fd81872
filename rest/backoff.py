"""Delays between tries: they double up to a cap, and are drawn at random so that callers spread out."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """`next_s()` draws from [half, whole] of first_s, 2 first_s, 4 first_s … at most cap_s.

    Never below half of the step: a herd that comes back after an outage must not hit at once.
    """

    first_s: float = 0.5
    cap_s: float = 30.0
    source: random.Random = field(default_factory=random.Random)
    _step: int = 0

    def next_s(self) -> float:
        """Seconds to wait before the next try."""
        # 2**30 times any first step is beyond every cap; the bound keeps the power small for ever.
        whole = min(self.cap_s, self.first_s * (1 << min(self._step, 30)))
        self._step += 1
        return whole * (0.5 + self.source.random() / 2)

    def reset(self) -> None:
        """The other side answered: start from first_s again."""
        self._step = 0
