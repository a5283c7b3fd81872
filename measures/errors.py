"""What the statistics refuse. All are ValueErrors: the caller asked for something that has no answer."""


class AnalysisInputError(ValueError):
    """Numbers or thresholds from which nothing can be computed; the message names the argument."""


class PairValueError(AnalysisInputError):
    """A pair holds a value that no log ratio can be taken of, or contradicts itself."""


class ReusedPairsError(AnalysisInputError):
    """A confirmation was asked of pairs that had already chosen what is to be confirmed."""
