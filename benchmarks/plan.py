"""What is measured, how often and in which order; which of it is already done. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

OURS: Final = "dynofarm"


@dataclass(frozen=True, slots=True)
class Config:
    """One way to run one peer. peer: folder in benchmarks/peers, or OURS. wanted: clean runs."""

    peer: str
    mode: str
    wanted: int
    expected_s: float
    """First guess of the whole run's duration, start-up included; later runs replace it."""

    @property
    def name(self) -> str:
        return f"{self.peer}/{self.mode}"


BEST: Final = (
    Config(OURS, "paged", 5, 60.0),
    Config("vllm_cpu", "conc", 5, 90.0),
    Config("openvino_genai", "conc_prime", 5, 60.0),
    Config("llama_cpp", "conc_save", 5, 90.0),
)
"""Ours and each peer at its best: the ratios of the table come from these, interleaved."""

OTHERS: Final = (
    Config(OURS, "serial_cached", 2, 90.0),
    Config("openvino_genai", "conc", 2, 60.0),
    Config("llama_cpp", "serial_cache", 2, 90.0),
    Config("openvino_genai", "serial_cache", 1, 90.0),
    Config("vllm_cpu", "serial_cache", 1, 120.0),
    Config("llama_cpp", "conc_default", 1, 120.0),
    Config("llama_cpp", "python", 1, 120.0),
    Config("transformers_hf", "shared", 1, 240.0),
    Config(OURS, "serial", 1, 240.0),
    Config("openvino_genai", "naive", 1, 180.0),
    Config("vllm_cpu", "naive", 1, 240.0),
    Config("llama_cpp", "serial_naive", 1, 300.0),
    Config("transformers_hf", "naive", 1, 400.0),
    Config("mlx_lm", "shared", 1, 900.0),
)
"""What each gains against itself, the cheapest first; an early end costs these, not the ratios."""

OTHERS_PERCENT_MAX: Final = 5.0
"""A run during which others used more of the machine is repeated, and otherwise marked."""
MAX_FAILURES: Final = 2
"""A peer's mode that fails so often is not tried again in this session; its error is reported."""


def is_clean(line: Mapping[str, Any], percent_max: float) -> bool:
    """A run that has a result and was not disturbed."""
    return line["result"] is not None and line["others_cpu_percent"] <= percent_max


def next_config(
    configs: Sequence[Config], lines: Iterable[Mapping[str, Any]], percent_max: float, extra_runs: int
) -> Config | None:
    """The next in the round robin; None when all is done.

    Of the best configurations the one that ran least often comes first; the others follow. A disturbed run is
    repeated, at most `extra_runs` times each.
    """
    lines = list(lines)
    ran = Counter(line["config"] for line in lines if line["result"] is not None)
    clean = Counter(line["config"] for line in lines if is_clean(line, percent_max))
    failed = Counter(line["config"] for line in lines if line["result"] is None)

    def is_due(config: Config) -> bool:
        name = config.name
        return (
            clean[name] < config.wanted
            and ran[name] < config.wanted + extra_runs
            and failed[name] < MAX_FAILURES
        )

    best = [config for config in configs if config in BEST and is_due(config)]
    others = [config for config in configs if config not in BEST and is_due(config)]

    def turns(config: Config) -> int:
        return ran[config.name] + failed[config.name]

    # min takes the first of equals, so that within a round the order is the plan's.
    return next((min(group, key=turns) for group in (best, others) if group), None)


def expected_s(config: Config, lines: Iterable[Mapping[str, Any]]) -> float:
    """How long the next run will take: as the slowest so far, or the first guess."""
    took = [line["took_s"] for line in lines if line["config"] == config.name]
    return max(took, default=config.expected_s)
