"""Minimum detectable effect: what a comparison could have seen, printed with each pass.

Source: the power of Student's t test, whose statistic is noncentral t under the alternative.
"""

import math

from scipy.optimize import brentq
from scipy.stats import nct, norm, t

from measures.errors import AnalysisInputError


def minimum_detectable_log(log_sd: float, pairs: int, alpha: float, power: float) -> float:
    """Smallest mean log ratio that a one-sided t test on `pairs` pairs finds with probability `power`.

    `log_sd` is the standard deviation of the pairs' log ratio, best from A/A runs of the same device and
    metric. The noncentral t makes it exact for Gaussian noise; heavier tails need more. `worsening_percent`
    turns the result into the percentage that is printed; the source's table is of a metric where higher is
    better.
    """
    if pairs < 2:
        raise AnalysisInputError(f"pairs: {pairs} pairs have no spread, so no detectable effect")
    if not (math.isfinite(log_sd) and log_sd >= 0):
        raise AnalysisInputError(f"log_sd: {log_sd} is not a standard deviation")
    if not 0 < alpha < power < 1:
        raise AnalysisInputError(f"alpha {alpha} and power {power}: they must satisfy 0 < alpha < power < 1")
    freedom = pairs - 1
    critical = float(t.isf(alpha, freedom))

    def missing_power(noncentrality: float) -> float:
        return float(nct.sf(critical, freedom, noncentrality)) - power

    # Few pairs at a strict level need noncentralities in the hundreds: widen until the root is inside.
    upper = critical + float(norm.isf(1 - power)) + 1
    while missing_power(upper) < 0:
        upper *= 2
    return float(brentq(missing_power, 0.0, upper)) * log_sd / math.sqrt(pairs)
