"""A calibration as a rich renderable, pure."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from contract.calibration import Calibration, CalibrationFinished, CandidateMeasured, OptionMeasured
from measures.wording import number

_BUSY_PERCENT = 10.0


def calibration_view(finished: CalibrationFinished) -> RenderableType:
    """What was chosen, between which values, and how far it can be trusted."""
    report = finished.report
    calibration = report.calibration
    key = calibration.key
    head = Text(
        f"{calibration.model} on {key.cpu}, {key.cores} cores: kernels {key.tier}, {key.dtype}, "
        f"{report.duration_s:.0f} s",
        style="bold",
    )
    table = Table(show_edge=False, pad_edge=False, header_style="bold", padding=(0, 1))
    for name in ("option", "value", "cost", "rounds", "measured"):
        table.add_column(name, overflow="fold")
    for measured in report.options:
        for candidate in measured.candidates:
            table.add_row(*_row(measured, candidate))
    where = Text(f"kept in {finished.file}", overflow="fold") if finished.file else Text("not kept")
    return Group(head, table, *_cautions(calibration), where)


def calibration_line(calibration: Calibration) -> str:
    """The chosen values in one line, for lists of devices."""
    key = calibration.key
    return (
        f"{calibration.model} ({key.tier}, {key.dtype}): threads {calibration.threads}, "
        f"batch {calibration.max_batch_sequences}, prefill chunk {calibration.prefill_chunk_tokens}"
    )


def _row(measured: OptionMeasured, candidate: CandidateMeasured) -> tuple[str, str, str, str, str]:
    is_chosen = candidate.value == measured.chosen
    figures = ", ".join(f"{name} {number(value)}" for name, value in candidate.figures.items())
    return (
        measured.option,
        f"{candidate.value}{' chosen' if is_chosen else ''}",
        f"{candidate.cost_ratio:.2f} x",
        str(candidate.rounds),
        figures,
    )


def _cautions(calibration: Calibration) -> list[Text]:
    cautions = []
    others = calibration.others_cpu_percent
    if others is not None and others > _BUSY_PERCENT:
        cautions.append(
            f"others used {others:.0f} % of the processor meanwhile: this holds for a machine as busy as that"
        )
    if calibration.unclear:
        cautions.append(
            f"not clear in the time there was: {', '.join(calibration.unclear)}; the better median was taken"
        )
    return [Text(each, style="yellow") for each in cautions]
