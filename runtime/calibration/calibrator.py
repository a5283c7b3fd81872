"""Measures what nobody should have to guess on this machine: threads, batch cap, prefill chunk.

Short measurements of all candidates in turn, round by round, until the choice is clear or its time is over:
a machine on which others work moves by more from one second to the next than the candidates differ.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import exp, log
from pathlib import Path
from statistics import fmean, median
from typing import Final

from contract.calibration import (
    Calibration,
    CalibrationReport,
    CalibrationStep,
    CandidateMeasured,
    OptionMeasured,
    OptionName,
)
from contract.ids import Name
from contract.jobs import EngineOptions
from runtime.calibration.contest import Contest, ContestRules
from runtime.calibration.probe import MAX_STEPS, SpeedProbe, probe_sizes
from runtime.engine.compute import decide_compute
from runtime.engine.models import ModelHolder
from runtime.host.machine import Machine, this_machine
from runtime.host.memory import memory_limit_bytes
from runtime.host.others import OthersMeter
from runtime.measured.conditions import calibration_key, model_digest
from runtime.measured.options import DEFAULT_PREFILL_CHUNK_TOKENS
from runtime.model.llama import LlamaModel

Say = Callable[[CalibrationStep], None]
Figures = dict[str, float]
Measure = Callable[[int], tuple[float, Figures]]
"""A candidate's cost, the smaller the better, and its figures for people."""

_BATCH_CANDIDATES: Final = (1, 2, 4, 8, 16, 32)
_CHUNK_CANDIDATES: Final = (64, 128, 256, 512, 1024)
_THREADS_ONE_BY_ONE: Final = 8
_THREADS_BATCH: Final = 4
_THREADS_PROMPT_TOKENS: Final = 128
_PREFILL_S: Final = 1.2
"""A prefill of the chunk contest takes about so long: shorter ones drown in what others do."""
_PREFILL_TOKENS_MIN: Final = 512
_DECODE_S: Final = 0.3
_POOL_SHARE: Final = 0.2
# Shares of the time that is left when an option's turn comes; the last one may use it all.
_SHARES: Final[dict[OptionName, float]] = {
    "threads": 0.4,
    "max_batch_sequences": 0.5,
    "prefill_chunk_tokens": 1.0,
}
# Fewer threads leave room for others, a smaller batch and chunk keep gaps between tokens short: where the
# difference is less than this, the smaller value is the better one.
_RULES: Final[dict[OptionName, ContestRules]] = {
    "threads": ContestRules(tolerance=0.03),
    "max_batch_sequences": ContestRules(tolerance=0.05),
    "prefill_chunk_tokens": ContestRules(tolerance=0.05),
}


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """limit_s: after the model was loaded no measurement begins later, but every option has one round."""

    model: Name
    model_path: Path
    limit_s: float


class Calibrator:
    """One calibration; `say` hears of every step."""

    def __init__(self, request: CalibrationRequest, say: Say) -> None:
        self._request = request
        self._say = say
        self._began_ns = time.monotonic_ns()
        self._machine = this_machine()
        self._meter = OthersMeter()

    def run(self) -> CalibrationReport:
        """RuntimeFault when the model cannot be loaded or computed with."""
        try:
            return self._run()
        finally:
            self._meter.close()

    def _run(self) -> CalibrationReport:
        self._tell("loading the model")
        compute = decide_compute(EngineOptions(), self._machine)
        models = ModelHolder(self._request.model_path, lambda stage, duration_ns: None)
        digest = model_digest(self._request.model_path)
        model = models.model(compute, self._machine.cores)
        sizes = probe_sizes(model, _BATCH_CANDIDATES[-1], _pool_bytes(self._machine, model))
        probe = SpeedProbe(model, sizes)
        loaded_s = self._spent_s
        self._began_ns = time.monotonic_ns()
        try:
            threads = self._threads(lambda count: models.model(compute, count), probe)
            models.model(compute, threads.chosen)
            batch = self._batch(probe)
            chunk = self._chunk(probe)
        finally:
            probe.close()
        options = [threads, batch, chunk]
        calibration = Calibration(
            model=self._request.model,
            key=calibration_key(compute, self._machine, digest),
            measured_at=datetime.now(UTC),
            threads=threads.chosen,
            max_batch_sequences=batch.chosen,
            prefill_chunk_tokens=chunk.chosen,
            unclear=[measured.option for measured in options if not measured.is_clear],
            others_cpu_percent=self._others_percent(self._began_ns),
        )
        return CalibrationReport(
            calibration=calibration, options=options, duration_s=loaded_s + self._spent_s
        )

    def _threads(self, set_threads: Callable[[int], object], probe: SpeedProbe) -> OptionMeasured:
        """What a run consists of, each part counted alike: prefill, one agent's decode, several agents'."""
        prompt = min(_THREADS_PROMPT_TOKENS, probe.sizes.prompt_tokens)
        several = min(_THREADS_BATCH, probe.sizes.sequences)
        steps = _steps_for(probe.decode_step_s(1, 1))

        def measure(threads: int) -> tuple[float, Figures]:
            set_threads(threads)
            # The first step after a change wakes or makes the threads.
            probe.decode_step_s(1, 1)
            prefill_s = probe.prefill_s(prompt, DEFAULT_PREFILL_CHUNK_TOKENS)
            alone_s, several_s = probe.decode_step_s(1, steps), probe.decode_step_s(several, steps)
            figures = {
                "prefill_tokens_per_s": prompt / prefill_s,
                "decode_step_ms": alone_s * 1e3,
                f"decode_step_of_{several}_ms": several_s * 1e3,
            }
            return exp(fmean(log(part_s) for part_s in (prefill_s, alone_s, several_s))), figures

        return self._decide("threads", thread_candidates(self._machine.cores), measure)

    def _batch(self, probe: SpeedProbe) -> OptionMeasured:
        """Time per token of all sequences together: a larger batch is worth it while that falls."""
        steps = _steps_for(probe.decode_step_s(min(_THREADS_BATCH, probe.sizes.sequences), 1))

        def measure(sequences: int) -> tuple[float, Figures]:
            step_s = probe.decode_step_s(sequences, steps)
            figures = {"decode_step_ms": step_s * 1e3, "output_tokens_per_s": sequences / step_s}
            return step_s / sequences, figures

        candidates = [each for each in _BATCH_CANDIDATES if each <= probe.sizes.sequences]
        return self._decide("max_batch_sequences", candidates, measure)

    def _chunk(self, probe: SpeedProbe) -> OptionMeasured:
        """Time of one long prompt, in chunks."""
        probed = min(_THREADS_PROMPT_TOKENS, probe.sizes.prompt_tokens)
        rate = probed / probe.prefill_s(probed, DEFAULT_PREFILL_CHUNK_TOKENS)
        tokens = min(probe.sizes.prompt_tokens, max(_PREFILL_TOKENS_MIN, int(rate * _PREFILL_S)))

        def measure(chunk_tokens: int) -> tuple[float, Figures]:
            prefill_s = probe.prefill_s(tokens, chunk_tokens)
            return prefill_s, {"prefill_tokens_per_s": tokens / prefill_s}

        # One that is longer than the prompt would measure the same as the one just below.
        fitting = [each for each in _CHUNK_CANDIDATES if each <= tokens] or [_CHUNK_CANDIDATES[0]]
        return self._decide("prefill_chunk_tokens", fitting, measure)

    def _decide(self, option: OptionName, candidates: Sequence[int], measure: Measure) -> OptionMeasured:
        contest = Contest(candidates, _RULES[option])
        measured: dict[int, list[Figures]] = {value: [] for value in candidates}
        began_ns = time.monotonic_ns()
        deadline_s = self._spent_s + _SHARES[option] * max(0.0, self._request.limit_s - self._spent_s)
        while not contest.is_over:
            found: dict[int, tuple[float, Figures]] = {}
            for value in contest.next_round():
                if contest.rounds > 0 and self._spent_s >= deadline_s:
                    break
                self._tell(f"{option}, round {contest.rounds + 1}: {value}")
                found[value] = measure(value)
            if len(found) < len(contest.next_round()):
                # Without its partners in the same round a measurement says nothing.
                break
            contest.record({value: cost for value, (cost, _) in found.items()})
            for value, (_, figures) in found.items():
                measured[value].append(figures)
        chosen = contest.chosen
        return OptionMeasured(
            option=option,
            chosen=chosen,
            is_clear=contest.is_clear,
            others_cpu_percent=self._others_percent(began_ns),
            candidates=[
                CandidateMeasured(
                    value=value,
                    cost_ratio=median(contest.ratios(value, chosen)),
                    rounds=len(rounds),
                    figures={name: median(figures[name] for figures in rounds) for name in rounds[0]},
                )
                for value, rounds in measured.items()
            ],
        )

    @property
    def _spent_s(self) -> float:
        return (time.monotonic_ns() - self._began_ns) / 1e9

    def _others_percent(self, since_ns: int) -> float:
        return self._meter.percent(since_ns, time.monotonic_ns())

    def _tell(self, message: str) -> None:
        self._say(CalibrationStep(message=message, spent_s=self._spent_s, limit_s=self._request.limit_s))


def says_nothing(report: CalibrationReport) -> bool:
    """No choice was clear and none rests on more than one round: chance would have chosen as well."""
    contested = [option for option in report.options if len(option.candidates) > 1]
    return bool(contested) and all(
        not option.is_clear and all(candidate.rounds <= 1 for candidate in option.candidates)
        for option in contested
    )


def thread_candidates(cores: int) -> list[int]:
    """Every number on a small machine; on a large one powers of two, three quarters, all but one, and all."""
    if cores <= _THREADS_ONE_BY_ONE:
        return list(range(1, cores + 1))
    powers = [1 << power for power in range(cores.bit_length())]
    return sorted({*powers, cores // 2, cores * 3 // 4, cores - 1, cores})


def _steps_for(step_s: float) -> int:
    """So many decode steps that they take a while, at least two."""
    return max(2, min(MAX_STEPS, int(_DECODE_S / max(step_s, 1e-9))))


def _pool_bytes(machine: Machine, model: LlamaModel) -> int:
    """For the measurements' KV, of what the weights leave of the memory that this process may use."""
    limit_bytes = memory_limit_bytes() or machine.memory_bytes or 4 * model.weights_bytes
    return int(_POOL_SHARE * max(0, limit_bytes - model.weights_bytes))
