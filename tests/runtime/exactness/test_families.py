"""Llama, Qwen2, Qwen3, from a folder and from GGUF: ids, logits and greedy tokens as in transformers."""

from functools import cache

import pytest
import torch
from transformers import GPT2Tokenizer, PreTrainedModel, PreTrainedTokenizerBase, Qwen2Tokenizer

from contract.workload import Sampling
from runtime.engine.contiguous import ContiguousEngine
from runtime.engine.generator import CallDone, CallKey, CallRequest, Generator
from runtime.engine.paged import PagedEngine, PagedSetup
from runtime.measured.trace import TraceObserver
from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.schedule.config import SchedulerConfig
from tests.fakes.loaded_model import LoadedModel, load_model
from tests.runtime.exactness.event_ledger import EventLedger
from tests.runtime.model import tiny_models
from tests.runtime.model.test_tokenizer import TEXTS, in_transformers

PROMPTS = [[(7 * i * i + 3 * i) % 300 for i in range(30)] + [5 * n, n] for n in range(3)]
OUTPUT_TOKENS = 12
TOLERANCE = 1e-4
# (name in a GGUF, tokenizer in transformers): Llama models of today have GPT-2's kind, as SmolLM2.
TOKENIZERS = {
    "llama": ("gpt-2", GPT2Tokenizer),
    "qwen2": ("qwen2", Qwen2Tokenizer),
    "qwen3": ("qwen2", Qwen2Tokenizer),
}
FORMATS = ("folder", "gguf")


@cache
def reference(family: str) -> PreTrainedModel:
    """Logits of about one: an absolute tolerance then means something."""
    model = tiny_models.random_model(family, tie_word_embeddings=False)
    with torch.no_grad():
        model.lm_head.weight.mul_(0.25)
    return model


@pytest.fixture(scope="session", params=[(f, k) for f in tiny_models.FAMILIES for k in FORMATS], ids="-".join)
def family_and_format(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture(scope="session")
def tokenizer(family_and_format: tuple[str, str], tmp_path_factory: pytest.TempPathFactory):
    """transformers' tokenizer of the family, with the tiny vocabulary."""
    family, _ = family_and_format
    pre, kind = TOKENIZERS[family]
    path = tiny_models.gguf_recipe(reference(family), pre).write(tmp_path_factory.mktemp("t") / "t.gguf")
    return in_transformers(kind, path)


@pytest.fixture(scope="session")
def loaded(
    family_and_format: tuple[str, str],
    tokenizer: PreTrainedTokenizerBase,
    tmp_path_factory: pytest.TempPathFactory,
) -> LoadedModel:
    family, form = family_and_format
    folder = tmp_path_factory.mktemp("model")
    if form == "gguf":
        recipe = tiny_models.gguf_recipe(reference(family), TOKENIZERS[family][0])
        return load_model(recipe.write(folder / "m.gguf"))
    reference(family).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_model(folder)


def test_token_ids_are_those_of_the_family_s_own_tokenizer(
    loaded: LoadedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    for text in [*TEXTS.values(), tiny_models.TEXT]:
        assert loaded.tokenizer.encode(text) == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_logits_differ_by_less_than_the_tolerance_at_every_position(
    loaded: LoadedModel, family_and_format: tuple[str, str]
) -> None:
    for prompt in PROMPTS:
        kv = ContiguousKV(loaded.model.config, len(prompt), loaded.model.placement)
        found = loaded.model.forward(ForwardBatch((Span(prompt, 0, len(prompt)),)), kv)
        with torch.inference_mode():
            expected = reference(family_and_format[0])(torch.tensor([prompt])).logits[0]
        assert (found - expected).abs().max() <= TOLERANCE


@pytest.mark.parametrize("arm_name", ["serial", "paged"])
def test_greedy_tokens_of_every_arm_are_those_of_transformers(
    loaded: LoadedModel, family_and_format: tuple[str, str], arm_name: str
) -> None:
    model = loaded.model
    arm: Generator = ContiguousEngine(model, 64, 16)
    if arm_name == "paged":
        setup = PagedSetup(24, 16, SchedulerConfig(), contamination_check=True)
        arm = PagedEngine(model, setup, TraceObserver(EventLedger(), 1))
    for number, prompt in enumerate(PROMPTS):
        key = CallKey(f"agent{number}", 0)
        arm.submit(CallRequest(key, tuple(prompt), OUTPUT_TOKENS, frozenset(), Sampling(), 5))
    facts = [fact for _ in iter(lambda: arm.has_work, False) for fact in arm.step()]
    made = {fact.key.agent: fact.output for fact in facts if isinstance(fact, CallDone)}
    assert made == {f"agent{n}": greedy(family_and_format[0], tuple(p)) for n, p in enumerate(PROMPTS)}


@cache
def greedy(family: str, prompt: tuple[int, ...]) -> tuple[int, ...]:
    tokens = list(prompt)
    for _ in range(OUTPUT_TOKENS):
        with torch.inference_mode():
            tokens.append(int(reference(family)(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tuple(tokens[len(prompt) :])
