"""Bad input, as an attempt meets it: one error that names what is wrong, and whoever can finish finishes.

What the loaders refuse in detail is in tests/runtime/model; here it is what a person gets to read.
"""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.failures import FailureReason
from contract.runtime_link import SPEC_FILE, RuntimeExit
from contract.workload import AgentPlan, Call, Segment, SegmentPart
from tests.fakes.attempt_specs import attempt_folder, attempt_spec, shared_prefix, workload
from tests.fakes.tiny_model import CONTEXT_TOKENS, POISON, save_tiny_model
from tests.runtime.measured.conftest import Run, last_word, of_type, read_events, start
from tests.runtime.measured.test_attempt import agent_status, tokens_by_arm

Spoil = Callable[[Path], Path]


def header_of(text: bytes, length: int | None = None) -> Spoil:
    """The weights' header replaced by `text`, said to be `length` bytes long."""

    def spoil(model: Path) -> Path:
        size = len(text) if length is None else length
        (model / "model.safetensors").write_bytes(struct.pack("<Q", size) + text + bytes(64))
        return model

    return spoil


def tensor_entry(**fields: object) -> Spoil:
    """A header with one tensor that is described wrongly."""
    entry = {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]} | fields
    return header_of(json.dumps({"model.norm.weight": entry}).encode())


def gguf(tensors: int, entries: int, rest: bytes = b"") -> Spoil:
    """A GGUF whose header declares so many tensors and metadata entries."""

    def spoil(model: Path) -> Path:
        path = model / "model.gguf"
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, entries) + rest)
        return path

    return spoil


def config(**changes: object) -> Spoil:
    def spoil(model: Path) -> Path:
        path = model / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return model

    return spoil


def too_many_tokens(model: Path) -> Path:
    """A tokenizer with a token beyond the model's rows; weights and config agree with each other."""
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"]["beyond"] = 999
    path.write_text(json.dumps(tokenizer))
    return model


BAD_MODELS: dict[str, tuple[Spoil, FailureReason, tuple[str, ...]]] = {
    "a header of no JSON": (
        header_of(b"{this is none"),
        FailureReason.MODEL_CORRUPT,
        ("model.safetensors", "not a whole safetensors file"),
    ),
    "a header longer than the file": (
        header_of(b"{}", length=2**40),
        FailureReason.MODEL_CORRUPT,
        ("model.safetensors", "not a whole safetensors file"),
    ),
    "a tensor outside of the file": (
        tensor_entry(data_offsets=[0, 2**40]),
        FailureReason.MODEL_CORRUPT,
        ("model.safetensors",),
    ),
    "a tensor whose size is not its shape": (
        tensor_entry(shape=[2**31, 2**31]),
        FailureReason.MODEL_CORRUPT,
        ("model.safetensors",),
    ),
    "a GGUF of 2^60 tensors": (gguf(2**60, 0), FailureReason.MODEL_CORRUPT, ("model.gguf",)),
    "a GGUF of 2^60 entries": (gguf(1, 2**60), FailureReason.MODEL_CORRUPT, ("model.gguf",)),
    "a GGUF with a key of 2^62 bytes": (
        gguf(1, 1, struct.pack("<Q", 2**62) + b"general.architecture"),
        FailureReason.MODEL_CORRUPT,
        ("model.gguf",),
    ),
    "a tokenizer that does not fit": (
        too_many_tokens,
        FailureReason.WRONG_TOKENIZER,
        ("the tokenizer has 1000 tokens, the model 260",),
    ),
    "another architecture": (
        config(model_type="mamba"),
        FailureReason.UNSUPPORTED_ARCHITECTURE,
        ("'mamba' is not supported; supported: llama, qwen2, qwen3",),
    ),
    "a rope scaling": (
        config(rope_scaling={"rope_type": "yarn", "factor": 4.0}),
        FailureReason.UNSUPPORTED_ARCHITECTURE,
        ("rope scaling", "yarn"),
    ),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_a_bad_model_is_refused_before_any_trial_and_named(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    spoil, reason, said = BAD_MODELS[name]
    model = spoil(save_tiny_model(tmp_path / "model"))
    exit_code, events = run(attempt_spec(shared_prefix()), model)
    word = last_word(events)
    assert (exit_code, word.status, word.reason) == (RuntimeExit.FAILED, "failed", reason)
    assert all(part in word.detail for part in said), word.detail
    assert not of_type(events, "trial_started")
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("sampling", "named"),
    [
        ({"temprature": 1.0}, "workload.agents.0.calls.0.sampling.temprature"),
        ({"temperature": -1.0}, "workload.agents.0.calls.0.sampling.temperature"),
        ({"top_p": 0}, "workload.agents.0.calls.0.sampling.top_p"),
    ],
)
def test_a_sampling_parameter_that_does_not_exist_or_fit_is_named_with_its_place(
    tmp_path: Path, tiny_model: Path, socket_path: Path, sampling: dict[str, float], named: str
) -> None:
    folder = attempt_folder(tmp_path, attempt_spec(shared_prefix()))
    spec = json.loads((folder / SPEC_FILE).read_text())
    spec["workload"]["agents"][0]["calls"][0]["sampling"] = sampling
    (folder / SPEC_FILE).write_text(json.dumps(spec))
    assert start(folder, tiny_model, socket_path) == RuntimeExit.USAGE
    word = last_word(read_events(folder))
    assert word.reason is FailureReason.BAD_SPEC
    assert word.detail.count(named) == 1


def test_a_memory_limit_that_no_event_can_hold_is_a_wrong_spec(
    tmp_path: Path, tiny_model: Path, socket_path: Path
) -> None:
    folder = attempt_folder(tmp_path, attempt_spec(shared_prefix(), memory_limit_bytes=1 << 30))
    spec = json.loads((folder / SPEC_FILE).read_text())
    spec["arms"][0]["engine"]["memory_limit_bytes"] = 2**53
    (folder / SPEC_FILE).write_text(json.dumps(spec))
    assert start(folder, tiny_model, socket_path) == RuntimeExit.USAGE
    word = last_word(read_events(folder))
    assert word.reason is FailureReason.BAD_SPEC
    assert "arms.0.engine.memory_limit_bytes" in word.detail


def plan_of(name: str, text: str, output_tokens: int, **more: int) -> tuple[AgentPlan, Segment]:
    """An agent of one call, which ends where the model wants."""
    segment = Segment(segment_id=f"{name}.text", text=text, **more)
    call = Call(parts=[SegmentPart(segment_id=segment.segment_id)], max_output_tokens=output_tokens)
    return AgentPlan(agent=name, calls=[call]), segment


BAD_AGENTS: dict[str, tuple[tuple[AgentPlan, Segment], FailureReason, str]] = {
    "a prompt beyond the context": (
        plan_of("bad", "on and on ", 4, tokens=CONTEXT_TOKENS + 1),
        FailureReason.CONTEXT_OVERFLOW,
        f"{CONTEXT_TOKENS + 4} tokens do not fit a context of {CONTEXT_TOKENS} tokens",
    ),
    "logits that are not numbers": (
        plan_of("bad", f"well begun {POISON}", 4),
        FailureReason.NON_FINITE_LOGITS,
        "logits are not finite for bad/0",
    ),
    "an output that outgrows the pool alone": (
        plan_of("bad", "abc ", 400, tokens=40),
        FailureReason.BUDGET_TOO_SMALL,
        "KV blocks are needed, the pool has",
    ),
}


@pytest.mark.parametrize("name", BAD_AGENTS)
def test_an_agent_that_cannot_go_on_fails_alone_and_the_others_finish(run: Run, name: str) -> None:
    (plan, segment), reason, said = BAD_AGENTS[name]
    good = shared_prefix(agents=3, calls=2)
    graph = workload([good.agents[0], plan, *good.agents[1:]], [*good.segments, segment])
    spec = attempt_spec(graph, ["paged"], kv_pool_tokens=16 * 24, contamination_check=True)
    exit_code, events = run(spec)
    assert exit_code == RuntimeExit.FAILED
    (failed,) = of_type(events, "call_failed")
    assert (failed.agent, failed.reason) == ("bad", reason)
    assert said in failed.detail
    expected = {f"agent{n}": ("completed", None) for n in range(3)} | {"bad": ("failed", reason)}
    assert agent_status(events) == expected
    assert said in last_word(events).detail


def test_the_others_write_what_they_write_without_the_bad_agent(run: Run, tmp_path: Path) -> None:
    good = shared_prefix(agents=3, calls=2)
    _, alone = run(attempt_spec(good, ["paged"]))
    bad = [plan_of(f"bad{n}", text, 4) for n, text in enumerate((POISON, f"{POISON} and more"))]
    graph = workload([bad[0][0], *good.agents, bad[1][0]], [*good.segments, *(segment for _, segment in bad)])
    second = attempt_folder(tmp_path / "second", attempt_spec(graph, ["paged"]))
    model = save_tiny_model(tmp_path / "model")
    assert start(second, model, tmp_path / "s") == RuntimeExit.FAILED
    beside = tokens_by_arm(read_events(second))["paged"]
    kept = {key: tokens for key, tokens in beside.items() if not key[0].startswith("bad")}
    assert kept == tokens_by_arm(alone)["paged"]
