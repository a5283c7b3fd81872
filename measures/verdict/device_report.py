"""The report of one job on one device: arms, verdicts, reading, failures and sample texts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from contract.failures import FAILURES, FailureReason
from contract.rest import ArmReport, DeviceReportView, GateRequest, PairView
from contract.states import TargetKind
from measures.facts.attempt import AttemptFacts, FailureNote
from measures.facts.conditions import condition_flags
from measures.metrics.arms import arm_report, medians_of
from measures.metrics.change import reduction_percent, speedup
from measures.metrics.flatness import flatness_of
from measures.verdict.judge import Verdict, VerdictWord
from measures.verdict.metric_verdicts import ComparisonPlan, Measured, verdict_view, verdicts
from measures.verdict.serial_reading import ArmMedians, read_result

LEVEL_PERCENT = 3.0
"""A median that moved by no more is "about the same" in the reading."""
MAX_SAMPLE_TEXTS = 16
MAX_SAMPLE_TEXT_CHARACTERS = 400
_READ_METRICS: Final = {
    "wall_s": "wall_s",
    "agent_ttft_ms": "ttft_ns",
    "peak_footprint_mb": "peak_footprint_bytes",
    "decode_tokens_per_s": "decode_tokens_per_s",
    "ttft_ms": "call_ttft_ns",
    "prompt_tokens_computed": "prompt_tokens_computed",
}
"""Metrics that the reading speaks of, each with its field of ArmMedians."""
_NOT_ESTABLISHED: Final = frozenset({VerdictWord.INCONCLUSIVE, VerdictWord.NO_DATA})
_NS_PER_MS = 1e6
_BYTES_PER_MB = 1e6


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Which job on which device, as the store knows it."""

    job_id: str
    variant: str
    device_id: str
    device_model: str
    os_version: str
    kind: TargetKind
    virtual: bool


def device_report(
    identity: DeviceIdentity,
    plan: ComparisonPlan,
    measured: Measured,
    verdicts: Mapping[str, Verdict],
    failure: FailureNote | None,
) -> DeviceReportView:
    """The view of one job. failure: what the attempt itself ended with, beside what its events tell."""
    arms = _arms(plan, measured)
    conditions = measured.facts.conditions
    # The conditions were recorded when it was measured; the device may have changed since. The runtime on an
    # emulated device knows only the machine that emulates it.
    told = None if identity.virtual else conditions
    walls = _wall_medians(plan, arms)
    return DeviceReportView(
        job_id=identity.job_id,
        variant=identity.variant,
        device_id=identity.device_id,
        device_model=told.device_model if told else identity.device_model,
        os_version=told.os_version if told else identity.os_version,
        kind=identity.kind,
        virtual=identity.virtual or bool(conditions and conditions.virtual),
        conditions=conditions,
        arms=arms,
        pairs=_pairs(measured),
        wall_reduction_percent=reduction_percent(*walls) if walls else None,
        speedup=speedup(*walls) if walls else None,
        verdicts=[verdict_view(name, verdict) for name, verdict in verdicts.items()],
        reading=[
            *_reading(plan, measured, arms),
            *_soak_reading(plan, measured),
            *condition_flags(measured.facts.trials),
        ],
        failures=failures(measured.facts, failure),
        sample_texts=sample_texts(measured.facts, plan.candidate),
    )


def _arms(plan: ComparisonPlan, measured: Measured) -> dict[str, ArmReport]:
    reports = {}
    for arm in plan.arms:
        planned = sum(trial.arm == arm.arm and not trial.warmup for trial in plan.trials)
        ended = sum(trial.finished_ns is not None for trial in measured.facts.measured(arm.arm))
        count = planned if measured.ended else ended
        reports[arm.arm] = arm_report(arm.arm, arm.mode, count, measured.facts, measured.samples)
    return reports


def _pairs(measured: Measured) -> list[PairView]:
    """Wall times pair by pair; a warm-up belongs to none."""
    walls: dict[int, dict[str, float]] = {}
    for sample in measured.samples:
        if sample.metric == "wall_s" and sample.pair is not None:
            walls.setdefault(sample.pair, {})[sample.arm] = sample.value
    return [PairView(pair=pair, wall_s=walls[pair]) for pair in sorted(walls)]


def _wall_medians(plan: ComparisonPlan, arms: Mapping[str, ArmReport]) -> tuple[float, float] | None:
    """Median wall time of baseline and candidate in seconds; None until both have one above zero."""
    if not plan.compares:
        return None
    baseline, candidate = (medians_of(arms[arm]).get("wall_s") for arm in (plan.baseline, plan.candidate))
    return (baseline, candidate) if baseline and candidate else None


def _reading(plan: ComparisonPlan, measured: Measured, arms: Mapping[str, ArmReport]) -> list[str]:
    """Sentences of the reading; it explains a change from serial execution to paged and nothing else."""
    if _wall_medians(plan, arms) is None:
        return []
    if not arms[plan.baseline].mode.startswith("serial") or arms[plan.candidate].mode != "paged":
        return []
    gate = GateRequest(metrics=list(_READ_METRICS), floor_percent=dict.fromkeys(_READ_METRICS, LEVEL_PERCENT))
    judged = verdicts(replace(plan, gate=gate), measured)
    unclear = [_READ_METRICS[name] for name, verdict in judged.items() if verdict.verdict in _NOT_ESTABLISHED]
    medians = [_arm_medians(medians_of(arms[arm])) for arm in (plan.baseline, plan.candidate)]
    return [sentence.text for sentence in read_result(medians[0], medians[1], LEVEL_PERCENT, unclear)]


def _soak_reading(plan: ComparisonPlan, measured: Measured) -> list[str]:
    """Whether each arm stayed flat, by its worst trial; nothing where the workload ends by itself."""
    if not plan.is_soak:
        return []
    sentences = []
    for arm in plan.arms:
        found = [flatness_of(trial) for trial in measured.facts.measured(arm.arm)]
        worst = max((flat for flat in found if flat), key=lambda flat: flat.growth_percent, default=None)
        if worst is not None:
            sentences.append(f"{arm.arm}: {worst}")
    return sentences


def _arm_medians(medians: Mapping[str, float]) -> ArmMedians:
    def positive(name: str, unit: float = 1.0) -> float | None:
        """A zero has no ratio, so the reading must not be given one."""
        value = medians.get(name, 0.0)
        return value * unit if value > 0 else None

    return ArmMedians(
        wall_s=medians["wall_s"],
        # From the trial's start: in the serial arm an agent waits for all before it, and that is the point.
        ttft_ns=positive("agent_ttft_ms", _NS_PER_MS),
        peak_footprint_bytes=positive("peak_footprint_mb", _BYTES_PER_MB),
        decode_tokens_per_s=positive("decode_tokens_per_s"),
        call_ttft_ns=positive("ttft_ms", _NS_PER_MS),
        prompt_tokens_computed=positive("prompt_tokens_computed"),
    )


def failures(facts: AttemptFacts, failure: FailureNote | None) -> list[str]:
    """Each kind of failure once: how often, what was said first, and what to try.

    A call that failed ends its agent, its runtime and its attempt with the same reason: that is one failure,
    and the call says most of it.
    """
    failure_notes = [*([failure] if failure else []), *facts.failure_notes]
    causes = [note for note in failure_notes if not note.is_end]
    counts = Counter(note.reason for note in causes)
    first: dict[FailureReason, str] = dict.fromkeys((note.reason for note in failure_notes), "")
    for note in (*causes, *failure_notes):
        first[note.reason] = first[note.reason] or note.detail
    return [
        f"{reason}{f' ({counts[reason]} times)' if counts[reason] > 1 else ''}: "
        f"{detail + '. ' if detail else ''}What to try: {FAILURES[reason].advice}"
        for reason, detail in first.items()
    ]


def sample_texts(facts: AttemptFacts, arm: str) -> list[str]:
    """What the agents of the arm's newest completed trial wrote, call by call, cut to a readable length."""
    completed = [trial for trial in facts.trials if trial.arm == arm and trial.completed]
    texts = [
        f"{call.agent}, call {call.call}: {_cut(call.finished.text)}"
        for trial in completed[-1:]
        for call in trial.calls
        if call.finished is not None and call.finished.text.strip()
    ]
    return texts[:MAX_SAMPLE_TEXTS]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= MAX_SAMPLE_TEXT_CHARACTERS:
        return line
    return line[: MAX_SAMPLE_TEXT_CHARACTERS - 1] + "…"
