"""Bounds of what may be asked of a comparison.

`RunRequest` refuses what lies outside, and the analysis has an answer for all that lies within: both read
these numbers, and a property test draws from one and feeds the other.
"""

from typing import Final

MIN_ALPHA: Final = 1e-4
"""A stricter level could not be reached: of MAX_PAIRS pairs the smallest p that is computed is about 1e-5."""
ALPHA_BELOW: Final = 0.5
FLOOR_PERCENT_BELOW: Final = 100.0
"""A time cannot fall by more than 100 %, so a floor of 100 % would pass everything."""
MAX_PAIRS: Final = 200
MAX_WARMUPS: Final = 10
SEED_BELOW: Final = 2**63
