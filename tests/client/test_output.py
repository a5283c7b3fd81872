"""What a model, a device or a server wrote is shown, and never steers the reader's terminal."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.progress import Progress
from rich.table import Table

from client.errors import UsageError
from client.output import Output
from contract.problems import FieldProblem

NASTY = "\x1b[2J\x1b]0;owned\x07\x9b31mred\x7f\u202egone"


def _is_harmless(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


def test_tables_and_messages_show_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    table = Table(NASTY, title=NASTY)
    table.add_row(NASTY)
    output.result(FieldProblem(pointer="", detail=NASTY), table)
    output.show(table)
    output.failure(UsageError("refused", NASTY, NASTY, (FieldProblem(pointer=NASTY, detail=NASTY),)))
    with Progress(console=output.messages) as bars:
        bars.add_task(NASTY)
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert "owned" in text
        assert _is_harmless(text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_json_is_harmless_on_a_terminal_and_holds_the_same_text(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    detail = FieldProblem(pointer="", detail=text.encode(errors="ignore").decode() + NASTY)
    Output(as_json=True).result(detail, "")
    out = capsys.readouterr().out
    assert not any(char in out for char in "\x1b\x9b\x7f\x85\u2028\u202e")
    assert json.loads(out)["detail"] == detail.detail
