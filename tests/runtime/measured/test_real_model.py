"""The arms on the real SmolLM2: greedy float32 tokens are equal, and the text is text."""

from pathlib import Path

import pytest

from contract.events import CallFinished
from contract.runtime_link import RuntimeExit
from contract.workload import AgentPlan, Call, Segment, SegmentPart
from tests.fakes.attempt_specs import attempt_spec, workload
from tests.fakes.demo_model import demo_model
from tests.runtime.measured.conftest import Run, of_type
from tests.runtime.measured.test_attempt import tokens_by_arm

QUESTIONS = ("What is the capital of France?", "How many days are in a week?")


@pytest.fixture(scope="session")
def smollm() -> Path:
    return demo_model()


def test_serial_and_paged_write_the_same_sensible_text(run: Run, smollm: Path) -> None:
    system = "<|im_start|>system\nYou are a helpful assistant. Answer in one short sentence.<|im_end|>\n"
    segments = [Segment(segment_id="system", text=system)]
    agents = []
    for number, question in enumerate(QUESTIONS):
        text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        again = "<|im_end|>\n<|im_start|>user\nAre you sure?<|im_end|>\n<|im_start|>assistant\n"
        segments += [
            Segment(segment_id=f"question{number}", text=text),
            Segment(segment_id=f"again{number}", text=again),
        ]
        calls = [
            Call(
                parts=[SegmentPart(segment_id="system"), SegmentPart(segment_id=f"question{number}")],
                max_output_tokens=10,
            ),
            Call(parts=[SegmentPart(segment_id=f"again{number}")], max_output_tokens=6, ignore_end=True),
        ]
        agents.append(AgentPlan(agent=f"agent{number}", calls=calls))
    spec = attempt_spec(workload(agents, segments), ["serial", "paged"], contamination_check=True)
    exit_code, events = run(spec, smollm)
    assert exit_code == RuntimeExit.COMPLETED
    made = tokens_by_arm(events)
    assert made["serial"] == made["paged"]
    texts = {
        (event.trial, event.agent): event.text
        for event in events
        if isinstance(event, CallFinished) and event.call == 0
    }
    assert "Paris" in texts[1, "agent0"]
    assert "Paris" in texts[2, "agent0"]
    assert not of_type(events, "contamination_found")
