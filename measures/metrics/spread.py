"""Median and range of repeated measurements; no mean is shown without its noise."""

import math
import statistics
from collections.abc import Iterable

from contract.rest import Spread
from measures.errors import AnalysisInputError


def spread_of(values: Iterable[float]) -> Spread:
    """Spread of the values, in their unit. AnalysisInputError when there is none or one is not finite."""
    kept = [float(value) for value in values]
    if not kept:
        raise AnalysisInputError("values: a spread needs at least one value")
    if not all(math.isfinite(value) for value in kept):
        raise AnalysisInputError("values: every value must be finite")
    return Spread(median=statistics.median(kept), min=min(kept), max=max(kept), n=len(kept))
