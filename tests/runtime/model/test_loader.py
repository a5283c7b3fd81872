"""One path in, a model out, or one error that names what is wrong and where."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from runtime.errors import (
    BadAttemptSpecError,
    ModelFileCorruptError,
    ModelFileMissingError,
    RuntimeFault,
    TokenizerMismatchError,
    UnsupportedArchitectureError,
    UnsupportedModelFeatureError,
)
from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.gguf_loader import GGUFSource
from tests.fakes.loaded_model import LoadedModel, load_model
from tests.runtime.model.tiny_models import GGUFRecipe, gguf_recipe, save

Refusal = tuple[Callable[[Any], object], type[RuntimeFault], str]


def first_logits(loaded: LoadedModel) -> torch.Tensor:
    kv = ContiguousKV(loaded.config, 4, loaded.model.placement)
    return loaded.model.forward(ForwardBatch((Span([5, 6, 7], 0, 3),)), kv)


def test_shards_give_the_model_of_the_single_file(
    tiny_hf: PreTrainedModel, tiny_folder: Path, tmp_path: Path
) -> None:
    sharded = save(tiny_hf, tmp_path, max_shard_size="20KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    assert torch.equal(first_logits(load_model(sharded)), first_logits(load_model(tiny_folder)))


def test_half_precision_files_are_widened_and_their_table_kept(
    tiny_hf: PreTrainedModel, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = copy(tiny_folder, tmp_path)
    weights = {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    loaded = load_model(folder)
    table = tiny_hf.config.vocab_size * tiny_hf.config.hidden_size
    assert loaded.weights_bytes == load_model(tiny_folder).weights_bytes - 2 * table
    torch.testing.assert_close(
        first_logits(loaded), first_logits(load_model(tiny_folder)), atol=0.5, rtol=0.1
    )


def test_a_gguf_and_its_folder_are_the_same_model(
    tiny_hf: PreTrainedModel, tiny_folder: Path, tmp_path: Path
) -> None:
    from_file = load_model(gguf_recipe(tiny_hf).write(tmp_path / "tiny.gguf"))
    from_folder = load_model(tiny_folder)
    rounded = from_file.config.rms_eps  # a GGUF holds it in float32
    assert rounded == pytest.approx(from_folder.config.rms_eps)
    assert from_file.config == replace(from_folder.config, rms_eps=rounded)
    assert torch.equal(first_logits(from_file), first_logits(from_folder))
    text = "the block table of tokens"
    assert from_file.tokenizer.encode(text) == from_folder.tokenizer.encode(text)


@pytest.mark.parametrize(("dtype", "device"), [("int3", "cpu"), ("float32", "tpu"), ("float32", "cuda:99x")])
def test_an_unknown_precision_or_device_is_refused_before_the_file_is_touched(
    dtype: str, device: str, tmp_path: Path
) -> None:
    with pytest.raises(BadAttemptSpecError, match=r"dtype|device"):
        load_model(tmp_path / "absent", dtype=dtype, device=device)


def test_a_path_with_nothing_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileMissingError, match="absent"):
        load_model(tmp_path / "absent")


def metadata(key: str, value: Any) -> Callable[[GGUFRecipe], object]:
    return lambda recipe: recipe.metadata.update({key: value})


def without(key: str) -> Callable[[GGUFRecipe], object]:
    return lambda recipe: recipe.metadata.pop(key)


def tensor(name: str, value: np.ndarray) -> Callable[[GGUFRecipe], object]:
    return lambda recipe: recipe.tensors.update({name: value})


GGUF_REFUSALS: dict[str, Refusal] = {
    "architecture": (
        metadata("general.architecture", "mamba"),
        UnsupportedArchitectureError,
        "'mamba' is not supported; supported: llama, qwen2, qwen3",
    ),
    "rope scaling": (
        metadata("llama.rope.scaling.type", "yarn"),
        UnsupportedModelFeatureError,
        "rope scaling",
    ),
    "rope scaling by factor alone": (
        metadata("llama.rope.scaling.factor", 4.0),
        UnsupportedModelFeatureError,
        "factor is 4.0",
    ),
    "partial rotary": (
        metadata("llama.rope.dimension_count", 4),
        UnsupportedModelFeatureError,
        "llama.rope.dimension_count",
    ),
    "a missing key": (without("llama.block_count"), ModelFileCorruptError, "llama.block_count"),
    "a key of the wrong type": (
        metadata("llama.block_count", "two"),
        ModelFileCorruptError,
        "not a whole number but 'two'",
    ),
    "no heads": (metadata("llama.attention.head_count", 0), ModelFileCorruptError, "heads"),
    "heads that do not divide": (
        metadata("llama.attention.head_count_kv", 4),
        ModelFileCorruptError,
        r"heads \(6\) must be a multiple of kv_heads \(4\)",
    ),
    "a billion layers": (
        metadata("llama.block_count", 10**9),
        ModelFileCorruptError,
        r"tensor blk\.2\.attn_norm\.weight is missing",
    ),
    "a missing tensor": (
        lambda recipe: recipe.tensors.pop("blk.1.ffn_up.weight"),
        ModelFileCorruptError,
        r"tensor blk\.1\.ffn_up\.weight is missing",
    ),
    "a tensor of another shape": (
        tensor("blk.0.attn_k.weight", np.zeros((8, 48), np.float32)),
        ModelFileCorruptError,
        r"blk\.0\.attn_k\.weight has shape \(8, 48\), the model needs \(16, 48\)",
    ),
    "a tensor that would be ignored": (
        tensor("rope_freqs.weight", np.ones(4, np.float32)),
        UnsupportedModelFeatureError,
        r"rope_freqs\.weight",
    ),
    "a tokenizer of another kind": (
        metadata("tokenizer.ggml.model", "llama"),
        UnsupportedModelFeatureError,
        "tokenizer.ggml.model = llama",
    ),
    "an unknown pre-tokeniser": (
        metadata("tokenizer.ggml.pre", "tekken"),
        UnsupportedModelFeatureError,
        "tokenizer.ggml.pre = tekken",
    ),
    "no merges": (without("tokenizer.ggml.merges"), ModelFileCorruptError, "tokenizer.ggml.merges"),
    "a merge of one token": (
        metadata("tokenizer.ggml.merges", ["th"]),
        ModelFileCorruptError,
        "merge 'th' is not two tokens",
    ),
    "merges of another vocabulary": (
        metadata("tokenizer.ggml.merges", ["qq zz"]),
        TokenizerMismatchError,
        "do not fit",
    ),
    "fewer types than tokens": (
        metadata("tokenizer.ggml.token_type", [1, 1]),
        TokenizerMismatchError,
        "2 token types",
    ),
    "two tokens of one text": (
        lambda recipe: recipe.metadata["tokenizer.ggml.tokens"].__setitem__(7, "!"),
        TokenizerMismatchError,
        "the same text",
    ),
    "an end token that is not a token": (
        metadata("tokenizer.ggml.eos_token_id", 70_000),
        TokenizerMismatchError,
        "70000",
    ),
    "more tokens than rows": (
        lambda recipe: recipe.tensors.update(
            {name: recipe.tensors[name][:200] for name in ("token_embd.weight", "output.weight")}
        ),
        TokenizerMismatchError,
        "the model 200",
    ),
}


@pytest.mark.parametrize("name", GGUF_REFUSALS)
def test_a_gguf_that_cannot_run_is_refused(name: str, tiny_hf: PreTrainedModel, tmp_path: Path) -> None:
    spoil, error, message = GGUF_REFUSALS[name]
    recipe = gguf_recipe(tiny_hf)
    spoil(recipe)
    with pytest.raises(error, match=message):
        load_model(recipe.write(tmp_path / "spoilt.gguf"))


def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def config(**changes: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        kept = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in kept.items() if value is not ...}))

    return change


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    def rewrite(folder: Path) -> None:
        held = load_file(folder / "model.safetensors")
        change(held)
        save_file(held, folder / "model.safetensors")

    return rewrite


def index(content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "model.safetensors.index.json").write_text(content)


K_PROJ = "model.layers.0.self_attn.k_proj.weight"
FOLDER_REFUSALS: dict[str, Refusal] = {
    "architecture": (config(model_type="gemma3"), UnsupportedArchitectureError, "'gemma3' is not supported"),
    "rope scaling, new form": (
        config(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0}),
        UnsupportedModelFeatureError,
        "rope scaling",
    ),
    "rope scaling, old form": (
        config(rope_scaling={"type": "linear", "factor": 2.0}),
        UnsupportedModelFeatureError,
        "rope scaling",
    ),
    "partial rotary": (
        config(rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.5}),
        UnsupportedModelFeatureError,
        "partial_rotary_factor",
    ),
    "attention bias": (config(attention_bias=True), UnsupportedModelFeatureError, "attention_bias"),
    "sliding window": (config(use_sliding_window=True), UnsupportedModelFeatureError, "use_sliding_window"),
    "another activation": (config(hidden_act="gelu"), UnsupportedModelFeatureError, "hidden_act"),
    "quantised": (
        config(quantization_config={"quant_method": "gptq"}),
        UnsupportedModelFeatureError,
        "quantization_config",
    ),
    "a missing key": (config(hidden_size=...), ModelFileCorruptError, "hidden_size: Field required"),
    "a key of the wrong type": (config(vocab_size="many"), ModelFileCorruptError, "vocab_size"),
    "no layers": (config(num_hidden_layers=0), ModelFileCorruptError, "layers must be at least 1"),
    "config.json is not JSON": (
        lambda folder: (folder / "config.json").write_text("{"),
        ModelFileCorruptError,
        "config.json",
    ),
    "no config.json": (
        lambda folder: (folder / "config.json").unlink(),
        ModelFileMissingError,
        "config.json",
    ),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        ModelFileMissingError,
        "model.safetensors",
    ),
    "truncated weights": (
        lambda folder: (folder / "model.safetensors").write_bytes(
            (folder / "model.safetensors").read_bytes()[:5000]
        ),
        ModelFileCorruptError,
        "not a whole safetensors file",
    ),
    "a missing tensor": (
        weights(lambda held: held.pop(K_PROJ)),
        ModelFileCorruptError,
        "k_proj.weight is missing",
    ),
    "a tensor of another shape": (
        weights(lambda held: held.update({K_PROJ: torch.zeros(8, 48)})),
        ModelFileCorruptError,
        r"has shape \(8, 48\), the model needs \(16, 48\)",
    ),
    "a tensor of whole numbers": (
        weights(lambda held: held.update({K_PROJ: torch.zeros(16, 48, dtype=torch.int8)})),
        UnsupportedModelFeatureError,
        "int8",
    ),
    "a tensor that would be ignored": (
        weights(lambda held: held.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(48)})),
        UnsupportedModelFeatureError,
        "q_proj.bias",
    ),
    "an index of nothing": (index("[]"), ModelFileCorruptError, "not an index of shards"),
    "an index that leads elsewhere": (
        index('{"weight_map": {"x": "../other.safetensors"}}'),
        ModelFileCorruptError,
        "outside the folder",
    ),
    "a shard that is not there": (
        index('{"weight_map": {"x": "model-00009.safetensors"}}'),
        ModelFileMissingError,
        "model-00009.safetensors",
    ),
    "a shard with a name that no system takes": (
        index(json.dumps({"weight_map": {"x": "x" * 300}})),
        ModelFileMissingError,
        "File name too long",
    ),
    "an end token beyond the vocabulary": (
        config(eos_token_id=300),
        TokenizerMismatchError,
        "end token 300 is not among the model's 300 tokens",
    ),
    "no tokenizer": (
        lambda folder: (folder / "tokenizer.json").unlink(),
        ModelFileMissingError,
        "tokenizer.json",
    ),
    "a tokenizer that is none": (
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        ModelFileCorruptError,
        "not a tokenizer",
    ),
    "a configuration nested beyond reading": (
        lambda folder: (folder / "config.json").write_text("[" * 100_000),
        ModelFileCorruptError,
        "not a model configuration",
    ),
    "an index nested beyond reading": (index("[" * 100_000), ModelFileCorruptError, "not an index of shards"),
    "a generation configuration nested beyond reading": (
        lambda folder: (folder / "generation_config.json").write_text("[" * 100_000),
        ModelFileCorruptError,
        "not JSON",
    ),
    "an end token that is not a number": (
        lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": ["</s>"]}'),
        ModelFileCorruptError,
        "eos_token_id",
    ),
}


@pytest.mark.parametrize("name", FOLDER_REFUSALS)
def test_a_folder_that_cannot_run_is_refused(name: str, tiny_folder: Path, tmp_path: Path) -> None:
    spoil, error, message = FOLDER_REFUSALS[name]
    folder = copy(tiny_folder, tmp_path)
    spoil(folder)
    with pytest.raises(error, match=message):
        load_model(folder)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root reads every file, whatever its mode."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_file_that_may_not_be_read_is_named(name: str, tiny_folder: Path) -> None:
    # Beside pytest's own folder, into which only its owner may look.
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(shutil.copytree(tiny_folder, Path(place) / "model"))
        for path in (folder, *folder.iterdir()):
            path.chmod(0 if path.name == name else 0o755)
        with (
            without_privileges(),
            pytest.raises(ModelFileMissingError, match=f"{name}: cannot be read: Perm"),
        ):
            load_model(folder)


def test_a_quantised_table_gives_the_rows_of_the_widened_one(real_gguf: Path) -> None:
    source = GGUFSource(real_gguf)
    ids = torch.tensor([0, 17, 49_151, 17])
    assert torch.equal(source.embedding().rows(ids), source.read("embed")[ids])
    source.close()
