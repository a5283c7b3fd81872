"""The tables in which a module of formulas names its metrics; measures/metrics/samples.py joins them.

A formula gives its value in the unit that the catalogue names, and None where there is nothing to measure.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from measures.facts.attempt import CallFacts, TrialFacts

_Facts = TypeVar("_Facts", CallFacts, TrialFacts)


@dataclass(frozen=True, slots=True)
class Formulas:
    """Metric to formula, by what one value describes; an agent's formula gives those of all agents."""

    calls: Mapping[str, Callable[[CallFacts], float | None]] = field(default_factory=dict)
    agents: Mapping[str, Callable[[TrialFacts], Mapping[str, float]]] = field(default_factory=dict)
    trials: Mapping[str, Callable[[TrialFacts], float | None]] = field(default_factory=dict)


class FormulaTwiceError(ValueError):
    """Two modules give a formula for one metric: which of them counted would depend on their order."""


def join(*tables: Formulas) -> Formulas:
    """All tables as one, read-only; FormulaTwiceError for a metric that occurs twice, whatever its scope."""
    names = [name for table in tables for part in (table.calls, table.agents, table.trials) for name in part]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FormulaTwiceError(f"more than one formula for {', '.join(twice)}")
    return Formulas(
        calls=MappingProxyType(dict(ChainMap(*(dict(table.calls) for table in tables)))),
        agents=MappingProxyType(dict(ChainMap(*(dict(table.agents) for table in tables)))),
        trials=MappingProxyType(dict(ChainMap(*(dict(table.trials) for table in tables)))),
    )


def scaled(formula: Callable[[_Facts], float | None], per_unit: float) -> Callable[[_Facts], float | None]:
    """The formula in the catalogue's unit, of which `per_unit` of the formula's own make one."""

    def value(facts: _Facts) -> float | None:
        own = formula(facts)
        return None if own is None else own / per_unit

    return value
