"""A process in the place of `python -m runtime.bench`: answers as FAKE_BENCH says, keeps what it was asked.

FAKE_BENCH is JSON: {"answer": object or text, "exit_code": int, "hang": path of a file that it makes first}.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from contract.bench import (
    ArmFigures,
    BenchFailure,
    BenchReport,
    BenchRequest,
    BenchRun,
    Bound,
    DecodeVsBandwidth,
)
from contract.rest import Spread
from contract.runtime_link import RuntimeExit

HANG_S = 60.0


def spread(median: float) -> Spread:
    """Three runs around the median."""
    return Spread(median=median, min=median * 0.9, max=median * 1.2, n=3)


def arm(wall_s: float, computed: int) -> ArmFigures:
    """An arm of seed-5x2000."""
    return ArmFigures(
        wall_s=spread(wall_s),
        ttft_first_s=spread(wall_s / 10),
        ttft_last_s=spread(wall_s / 2),
        itl_p50_ms=spread(30.0),
        itl_p95_ms=spread(40.0),
        prompt_tokens_submitted=33_060,
        prompt_tokens_computed=computed,
        kv_hit_rate_tokens=1 - computed / 33_060,
        peak_footprint_mb=500.0,
    )


def report(**changes: object) -> BenchReport:
    """A report of the three arms, measured on a quiet machine."""
    run = BenchRun(
        arm="paged",
        round=1,
        wall_s=10.0,
        ttft_s={"agent-1": 2.0},
        itl_p50_ms=30.0,
        itl_p95_ms=40.0,
        others_cpu_percent=0.5,
        counted=True,
        output_sha256="0" * 64,
    )
    whole = BenchReport(
        workload="seed-5x2000",
        workload_digest="sha256:" + "1" * 64,
        seed=0,
        model="",
        model_digest="sha256:" + "2" * 64,
        tier="native",
        dtype="float32",
        threads=2,
        cpu="a processor",
        cores=2,
        arms={"serial": arm(100.0, 33_060), "serial_cached": arm(25.0, 3120), "paged": arm(10.0, 3120)},
        reduction_vs_serial_percent=90.0,
        reduction_vs_serial_cached_percent=60.0,
        bound=Bound(
            wall_s=5.0,
            reduction_percent=86.0,
            reduction_vs_serial_cached_percent=62.0,
            read_bandwidth_bytes_per_s=30e9,
            matrix_product_flops=200e9,
        ),
        wall_vs_bound=2.0,
        decode_step_vs_bandwidth=DecodeVsBandwidth(batch_1=0.6, batch_5=0.5),
        worst_gap_vs_median_itl=2.5,
        pool_waste_percent=0.9,
        event_cost_percent=0.4,
        event_processor_percent=0.3,
        footprint_above_weights_and_live_kv_mb=None,
        others_cpu_percent=0.5,
        contaminated_runs=0,
        outputs_agree=True,
        runs=[run],
        conditions={},
    )
    return whole.model_copy(update=changes)


def main() -> int:
    """Answers one request."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--request", type=Path, required=True)
    asked = BenchRequest.model_validate_json(parser.parse_args().request.read_bytes())
    plan = json.loads(os.environ["FAKE_BENCH"])
    if "asked" in plan:
        Path(plan["asked"]).write_text(asked.model_dump_json())
    sys.stderr.write("bench: round 1\n")
    if "hang" in plan:
        return _hang(Path(plan["hang"]))
    answer = plan.get("answer")
    sys.stdout.write(answer if isinstance(answer, str) else json.dumps(answer))
    return int(plan.get("exit_code", 0))


def _hang(started: Path) -> int:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    started.write_text(str(os.getpid()))
    deadline_s = time.monotonic() + HANG_S
    while not stopping and time.monotonic() < deadline_s:
        time.sleep(0.01)
    started.with_suffix(".stopped").write_text("")
    failure = BenchFailure(kind="cancelled", detail="somebody asked for it", advice="ask again")
    sys.stdout.write(failure.model_dump_json())
    return RuntimeExit.CANCELLED


if __name__ == "__main__":
    sys.exit(main())
