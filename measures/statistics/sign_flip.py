"""Sign-flip test on the mean of paired log ratios: under "no effect" each ratio is as likely as its inverse.

Source: Fisher, The Design of Experiments (1935), section 21. The smallest p that n pairs can reach is 2**-n.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from measures.errors import AnalysisInputError

EXACT_PAIRS = 20
RANDOM_DRAWS = 100_000
_DRAWS_AT_ONCE = 10_000


def sign_flip_p(log_ratios: Sequence[float] | NDArray[np.float64], seed: int) -> float:
    """One-sided p, in (0, 1], that the mean of the log ratios is greater than zero only by chance.

    Exact over all 2**n sign patterns up to EXACT_PAIRS pairs, where `seed` has no influence. Above that
    RANDOM_DRAWS patterns drawn from `seed`, the observed one counted among them so that p is never zero.
    For "smaller than zero" pass the negated ratios. AnalysisInputError for no ratios or one not finite.
    """
    ratios = np.asarray(log_ratios, dtype=np.float64)
    if ratios.ndim != 1 or ratios.size == 0 or not np.isfinite(ratios).all():
        raise AnalysisInputError("log_ratios: the test needs one or more finite numbers")
    # Patterns that tie in real numbers differ in their last bits; without this they would be lost from the
    # tail.
    tie = 1e-12 * ratios.size + 1e-9 * float(np.abs(ratios).sum())
    if ratios.size <= EXACT_PAIRS:
        return _exact_p(ratios, tie)
    return _random_p(ratios, tie, seed)


def _exact_p(ratios: NDArray[np.float64], tie: float) -> float:
    sums = np.zeros(1)
    for ratio in ratios:
        sums = np.concatenate([sums - ratio, sums + ratio])
    observed = sums[-1]
    return float(np.count_nonzero(sums >= observed - tie)) / sums.size


def _random_p(ratios: NDArray[np.float64], tie: float, seed: int) -> float:
    generator = np.random.Generator(np.random.PCG64(seed))
    least = float(ratios.sum()) - tie
    as_great = 0
    for _ in range(RANDOM_DRAWS // _DRAWS_AT_ONCE):
        signs = 2 * generator.integers(0, 2, size=(_DRAWS_AT_ONCE, ratios.size), dtype=np.int8) - 1
        as_great += int(np.count_nonzero(signs @ ratios >= least))
    return (1 + as_great) / (1 + RANDOM_DRAWS)
