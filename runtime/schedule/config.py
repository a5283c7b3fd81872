"""What a scheduler may do in a step, and what it has done."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits of a step. ValueError where they contradict each other.

    prefill_tokens: prompt tokens beside decodes that have a pace; fewer where durations are observed.
    stretch_aim: a step with prefill may take so many times a step of the same decodes without (pace.py).
    stretch_bound: the same where the aim cannot be met whatever the chunk.
    idle_prefill_tokens: the same in a step without such decodes: this bounds activation memory.
    high_watermark_blocks: nobody joins others unless this many stay available for its whole prompt.
    low_watermark_blocks: growth that would leave fewer preempts the lowest priority, newest first.
    aging_steps: steps without a row that raise a priority by one.
    follow_tokens: a prefix that another is computing is waited for from this length on (or one block).
    """

    max_batch: int = 8
    prefill_tokens: int = 256
    idle_prefill_tokens: int = 1024
    high_watermark_blocks: int = 2
    low_watermark_blocks: int = 1
    aging_steps: int = 64
    follow_tokens: int = 32
    stretch_aim: float = 2.0
    stretch_bound: float = 3.0

    def __post_init__(self) -> None:
        """Checks each limit and the order of the watermarks."""
        if min(self.max_batch, self.prefill_tokens, self.idle_prefill_tokens) < 1:
            raise ValueError(f"a step needs at least one row and one token: {self}")
        if min(self.aging_steps, self.follow_tokens) < 1:
            raise ValueError(f"aging_steps and follow_tokens are at least 1: {self}")
        if not 0 <= self.low_watermark_blocks <= self.high_watermark_blocks:
            raise ValueError(f"watermarks must rise from low to high: {self}")
        if not 1.0 < self.stretch_aim <= self.stretch_bound:
            raise ValueError(f"a step with prefill takes longer than one without, at most the bound: {self}")


@dataclass(slots=True)
class SchedulerCounters:
    """Since the start. hit_tokens count first admissions only; computed_tokens count recomputation too."""

    submitted_prompt_tokens: int = 0
    hit_tokens: int = 0
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
