"""The end of processes that we started."""

import subprocess
import sys

import pytest

from client.child_process import exit_code


@pytest.mark.parametrize(
    ("program", "code"), [("raise SystemExit(3)", 3), ("import os, time; os.close(1); time.sleep(60)", -15)]
)
def test_a_process_that_said_its_last_word_has_an_exit_code_though_it_goes_on(
    program: str, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b""
        # The first one ends by itself, however slow the machine is.
        assert exit_code(process, 0.5 if code < 0 else 60.0) == code
