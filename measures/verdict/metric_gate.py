"""From the verdicts on the primary metrics to one word and one exit code (decisions.md 8)."""

from collections.abc import Sequence
from typing import NamedTuple

from contract.states import GateExit
from measures.verdict.judge import Verdict, VerdictWord

# Worst first: the first word that any primary metric has is the gate's. A confirmed regression stays one
# whatever else is missing. Below the failures the order is that of what is worth saying: any gain before
# "same".
EXIT_BY_VERDICT: dict[VerdictWord, GateExit] = {
    VerdictWord.REGRESSED: GateExit.REGRESSION,
    VerdictWord.NO_DATA: GateExit.INFRASTRUCTURE,
    VerdictWord.INCONCLUSIVE: GateExit.INCONCLUSIVE,
    VerdictWord.IMPROVED: GateExit.PASS,
    VerdictWord.SMALL_CHANGE: GateExit.PASS,
    VerdictWord.SAME: GateExit.PASS,
}


class GateOutcome(NamedTuple):
    """The gate's word and the exit code that goes with it."""

    verdict: VerdictWord
    exit_code: GateExit


def gate_outcome(primary: Sequence[Verdict]) -> GateOutcome:
    """Outcome over the verdicts of the primary metrics; NO_DATA when there is not one."""
    words = {verdict.verdict for verdict in primary}
    for word, exit_code in EXIT_BY_VERDICT.items():
        if word in words:
            return GateOutcome(word, exit_code)
    return GateOutcome(VerdictWord.NO_DATA, EXIT_BY_VERDICT[VerdictWord.NO_DATA])
