"""`dynofarm bench runtime`: the runtime's arms on this machine, measured by a process of its own."""

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import ValidationError

from client.assignments import assignments
from client.bench_process import run_bench
from client.demo_sizes import MODEL
from client.errors import UsageError
from client.local_farm import stopped_by_sigterm
from client.options import HomeOptions
from client.output import Output
from client.render_bench import bench_view
from client.settings import read_settings
from contract.bench import BenchRequest
from contract.home import named_model
from contract.jobs import EngineOptions
from contract.problems import FieldProblem
from contract.rest import WorkloadRequest
from contract.states import GateExit
from contract.workload import CompiledWorkload
from workloads import WorkloadError, compile_request

DeviceOption = Literal["auto", "cpu", "cuda", "mps"]
TierOption = Literal["auto", "aten", "native", "cuda"]
DtypeOption = Literal["auto", "float32", "bfloat16"]
WeightOption = Literal["auto", "int8"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BenchRuntimeOptions(HomeOptions):
    """What is measured; what is not given, the runtime chooses and reports."""

    workload: Annotated[str, typer.Option("--workload", help="A built-in workload.")] = "seed-5x2000"
    params: Annotated[
        list[str], typer.Option("--param", "-p", metavar="NAME=VALUE", help="Sets a parameter of it.")
    ] = dataclasses.field(default_factory=list)
    model: Annotated[
        str,
        typer.Option(
            "--model", help=f"GGUF file, Hugging Face folder, or a name in the home's models [{MODEL}]."
        ),
    ] = ""
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, max=100, help="Clean runs of each fast arm.")
    ] = 5
    serial_repeats: Annotated[
        int, typer.Option("--serial-repeats", min=0, max=100, help="Clean runs of the slow serial arm.")
    ] = 2
    threads: Annotated[int | None, typer.Option("--threads", min=1, max=256, help="Compute threads.")] = None
    dtype: Annotated[DtypeOption, typer.Option("--dtype", help="Precision of the computation.")] = "auto"
    weight_dtype: Annotated[
        WeightOption, typer.Option("--weight-dtype", help="Precision in which weights are kept.")
    ] = "auto"
    tier: Annotated[TierOption, typer.Option("--tier", help="Which kernels run.")] = "auto"
    device: Annotated[DeviceOption, typer.Option("--device", help="Where tensors lie.")] = "auto"
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the token ids.")] = 0
    quiet_wait_s: Annotated[
        float, typer.Option("--quiet-wait-s", min=0, help="How long a round waits for a quiet machine.")
    ] = 30.0
    extra_rounds: Annotated[
        int, typer.Option("--extra-rounds", min=0, max=100, help="Rounds that may repeat disturbed runs.")
    ] = 5
    limit_s: Annotated[float, typer.Option("--limit-s", min=1, max=86_400, help="All ends by then.")] = 7200.0


def bench_runtime(options: BenchRuntimeOptions, output: Output) -> int:
    """Measure the runtime on this machine. Serial, serial with a prefix cache and paged, interleaved in one
    process, beside the machine's memory bandwidth and matrix products; runs that others disturb are
    repeated. With its defaults it takes about a quarter of an hour on two cores, longer on a busy machine;
    nothing of it is kept when it is stopped. Far shorter: -p prefix_tokens=200 --repeats 2."""
    request = bench_request(options)
    with tempfile.TemporaryDirectory(prefix="dynofarm-bench-") as folder, stopped_by_sigterm():
        path = Path(folder) / "request.json"
        path.write_text(request.model_dump_json())
        report = run_bench((*read_settings().bench_command, "--request", str(path)), options.limit_s)
    output.result(report, bench_view(report))
    return GateExit.PASS


def bench_request(options: BenchRuntimeOptions) -> BenchRequest:
    """What the options ask for; UsageError for a workload or value that cannot be."""
    engine = {
        "device": options.device,
        "tier": options.tier,
        "dtype": options.dtype,
        "weight_dtype": options.weight_dtype,
        "threads": options.threads,
    }
    try:
        return BenchRequest(
            workload=_compiled(options),
            model=_model(options),
            engine=EngineOptions.model_validate(engine),
            seed=options.seed,
            repeats={
                "serial": options.serial_repeats,
                "serial_cached": options.repeats,
                "paged": options.repeats,
            },
            without_events_repeats=options.repeats,
            quiet_wait_s=options.quiet_wait_s,
            extra_rounds=options.extra_rounds,
            limit_s=options.limit_s,
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError("bad-option", f"{where}: {first['msg']}", "`--help` lists the options") from error


def _model(options: BenchRuntimeOptions) -> str:
    """A path, "" for the built-in model; UsageError that says what was looked for."""
    if not options.model:
        return ""
    path = Path(options.model).expanduser().absolute()
    # Not Path.exists: it raises for a name that is too long or a folder that may not be looked into.
    if os.path.exists(path):
        return str(path)
    home = options.farm_home()
    # A name may not lead out of the folder.
    named = (
        named_model(home.models_folder, options.model) if Path(options.model).name == options.model else None
    )
    if named is not None:
        return str(named)
    if options.model == MODEL:
        return ""
    raise UsageError(
        "model-missing",
        f"{options.model} is not a file or folder, and not a model of {home.models_folder}",
        f"name a GGUF file, a Hugging Face folder, or {MODEL}",
    )


def _compiled(options: BenchRuntimeOptions) -> CompiledWorkload:
    asked = WorkloadRequest(name=options.workload, params=assignments(options.params, "--param"))
    try:
        cells = compile_request(asked)
    except WorkloadError as error:
        wrong = (FieldProblem(pointer=error.field, detail=error.problem),)
        raise UsageError(
            "bad-workload", str(error), "`dynofarm workloads show NAME` lists its parameters", wrong
        ) from error
    if len(cells) != 1:
        raise UsageError(
            "bad-workload",
            f"{options.workload} is a sweep of {len(cells)} cells; one is measured at a time",
            f"choose one, as with `-p {next(iter(cells[0].params))}=…`",
        )
    return cells[0]
