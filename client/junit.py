"""A gate as a JUnit file: a regression is a failure, whatever kept us from a verdict is an error."""

import re
from typing import Final
from xml.etree import ElementTree

from client.errors import ClientError
from contract.rest import DeviceReportView, MetricVerdict, RunReport
from contract.states import GateExit
from measures.wording import change, interval

_SUITE: Final = "dynofarm.gate"
# XML 1.0 has no way to write these.
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of_report(report: RunReport) -> str:
    """One test case per device and gated metric, one for a device without any verdict, and one for the run
    where a gate that did not pass is explained by none of these.

    `time` of a case is its share of the time that its device measured: the cases add up to it.
    """
    suite = _suite(report.run_id)
    _add_properties(suite, report)
    for device in report.devices:
        for verdict in device.verdicts:
            _add_case(suite, report, device, verdict)
        if not device.verdicts and device.failures:
            case = _case(suite, _place(report, device), "measured", _measured_s(device))
            _problem(case, "error", "not-measured", "; ".join(device.failures))
    if report.gate.exit_code not in (GateExit.PASS, GateExit.REGRESSION) and not _has_problem(suite):
        _problem(_case(suite, report.workload, "measured"), "error", report.gate.verdict, report.gate.reason)
    return _text(suite)


def junit_of_error(run_id: str, error: ClientError) -> str:
    """The file of a gate that could not even be asked."""
    suite = _suite(run_id)
    _problem(_case(suite, _SUITE, "gate"), "error", error.code, f"{error.detail}. {error.next_step}".strip())
    return _text(suite)


def _suite(run_id: str) -> ElementTree.Element:
    return ElementTree.Element("testsuite", name=_SUITE, id=_clean(run_id))


def _add_properties(suite: ElementTree.Element, report: RunReport) -> None:
    properties = ElementTree.SubElement(suite, "properties")
    values = {
        "run_id": report.run_id,
        "workload": report.workload,
        "model": report.model,
        "baseline": report.baseline,
        "candidate": report.candidate,
        "verdict": report.gate.verdict,
        "exit_code": str(int(report.gate.exit_code)),
        "report_url": report.report_url,
    }
    for name, value in values.items():
        ElementTree.SubElement(properties, "property", name=name, value=_clean(value))


def _add_case(
    suite: ElementTree.Element, report: RunReport, device: DeviceReportView, verdict: MetricVerdict
) -> None:
    case = _case(suite, _place(report, device), verdict.metric, _measured_s(device) / len(device.verdicts))
    properties = ElementTree.SubElement(case, "properties")
    facts = {
        "verdict": verdict.verdict,
        "device_model": device.device_model,
        "change": change(verdict.change_percent),
        "interval": interval(verdict.interval_percent, verdict.interval_confidence),
        "p_value": "" if verdict.p_value is None else f"{verdict.p_value:.4g}",
        "pairs": str(verdict.pairs),
        "mde_percent": "" if verdict.mde_percent is None else f"{verdict.mde_percent:.2f}",
    }
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=_clean(value))
    if verdict.verdict == "regressed":
        _problem(case, "failure", "regression", verdict.reason)
    elif verdict.verdict == "inconclusive":
        # With `inconclusive: pass` the run's gate is 0, and the case must not be red either.
        kind = "skipped" if report.gate.exit_code is GateExit.PASS else "error"
        _problem(case, kind, "inconclusive", verdict.reason)


def _place(report: RunReport, device: DeviceReportView) -> str:
    return ".".join(part for part in (report.workload, device.device_id, device.variant) if part)


def _measured_s(device: DeviceReportView) -> float:
    return sum(wall_s for pair in device.pairs for wall_s in pair.wall_s.values())


def _case(suite: ElementTree.Element, class_name: str, name: str, time_s: float = 0.0) -> ElementTree.Element:
    # Readers add `time` up without asking whether it is there.
    return ElementTree.SubElement(
        suite, "testcase", classname=_clean(class_name), name=_clean(name), time=f"{time_s:.3f}"
    )


def _problem(case: ElementTree.Element, kind: str, type_: str, message: str) -> None:
    problem = ElementTree.SubElement(case, kind, message=_clean(message))
    if kind != "skipped":
        problem.set("type", _clean(type_))
        # Many readers show the text of the element and not its attribute.
        problem.text = _clean(message)


def _has_problem(suite: ElementTree.Element) -> bool:
    return any(suite.find(f"testcase/{kind}") is not None for kind in ("failure", "error"))


def _text(suite: ElementTree.Element) -> str:
    for name, tag in (
        ("tests", "testcase"),
        ("failures", "failure"),
        ("errors", "error"),
        ("skipped", "skipped"),
    ):
        suite.set(name, str(sum(1 for _ in suite.iter(tag))))
    suite.set("time", f"{sum(float(case.get('time', 0)) for case in suite.iter('testcase')):.3f}")
    suites = ElementTree.Element("testsuites", time=suite.get("time", "0"))
    suites.append(suite)
    ElementTree.indent(suites)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"
    )


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
