"""Facts to samples: each metric of the catalogue by its one formula.

To add a metric: a line in contract/metrics.py, and its formula with a line in the table of its module
(latency.py, kv.py, memory.py, throughput.py); nothing here (docs/adr/0002).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from contract.metrics import METRICS, Scope
from measures.facts.attempt import TrialConditions, TrialFacts
from measures.metrics import kv, latency, memory, throughput
from measures.metrics.formulas import Formulas, join

_UNTOLD: Final = TrialConditions()


@dataclass(frozen=True, slots=True)
class SampleValue:
    """One value of one metric, in the catalogue's unit. agent and call None where the metric spans them.

    conditions: those of its trial, since a value measured hot is another fact than one measured cool.
    """

    metric: str
    trial: int
    arm: str
    pair: int | None
    agent: str | None
    call: int | None
    value: float
    conditions: TrialConditions = _UNTOLD


_FORMULAS: Final[Formulas] = join(kv.FORMULAS, latency.FORMULAS, memory.FORMULAS, throughput.FORMULAS)

FORMULAS_BY_SCOPE: Final[Mapping[Scope, Mapping[str, object]]] = MappingProxyType(
    {Scope.CALL: _FORMULAS.calls, Scope.AGENT: _FORMULAS.agents, Scope.TRIAL: _FORMULAS.trials}
)


def samples_of(trial: TrialFacts) -> list[SampleValue]:
    """Every sample of a trial, in the catalogue's order; a call's tries that failed have none.

    A trial that is not completed has only its counts: what it took before it broke off is not a duration.
    ImpossibleEventsError for times that cannot be.
    """
    samples: list[SampleValue] = []
    for name, definition in METRICS.items():
        if not trial.completed and definition.unit != "count":
            continue
        samples += [
            SampleValue(name, trial.trial, trial.arm, trial.pair, agent, call, float(value), trial.conditions)
            for agent, call, value in _values(name, trial)
        ]
    return samples


def _values(name: str, trial: TrialFacts) -> Iterator[tuple[str | None, int | None, float]]:
    """(agent, call, value) of one metric."""
    if name in _FORMULAS.calls:
        for call in trial.calls:
            value = _FORMULAS.calls[name](call) if call.failed is None else None
            if value is not None:
                yield call.agent, call.call, value
    elif name in _FORMULAS.agents:
        for agent, value in _FORMULAS.agents[name](trial).items():
            yield agent, None, value
    else:
        value = _FORMULAS.trials[name](trial)
        if value is not None:
            yield None, None, value
