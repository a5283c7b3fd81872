"""Every fault of the runtime says which one it is, who must act and what to try."""

import re
from pathlib import Path

import pytest

from contract.failures import FAILURES
from runtime import errors
from runtime.errors import ModelFileCorruptError, RuntimeFault

FAULTS = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, RuntimeFault)
]
RAISED = [fault for fault in FAULTS if fault is not RuntimeFault]


@pytest.mark.parametrize("fault", RAISED, ids=lambda fault: fault.__name__)
def test_a_fault_carries_its_kind_and_what_the_contract_says_of_its_reason(fault: type[RuntimeFault]) -> None:
    words = re.findall("[A-Z][a-z]+", fault.__name__.removesuffix("Error"))
    assert fault.kind == "-".join(words).lower()
    assert fault.fault is FAILURES[fault.reason].fault
    assert fault.advice == FAILURES[fault.reason].advice


def test_kinds_are_unique() -> None:
    assert len({fault.kind for fault in RAISED}) == len(RAISED) > 10


def test_a_cut_file_names_both_sizes() -> None:
    error = ModelFileCorruptError(Path("m.gguf"), "cut short", expected_bytes=10, actual_bytes=7)
    assert str(error) == "m.gguf: cut short (expected 10 bytes, found 7)"
