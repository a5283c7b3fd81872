"""What a file says of its model is taken at its word or refused: never bent, never silently left out."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import PreTrainedModel

from runtime.errors import ModelFileCorruptError, RuntimeFault, UnsupportedModelFeatureError
from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.forward_batch import ForwardBatch, Span
from tests.fakes.loaded_model import load_model
from tests.runtime.model.tiny_models import GGUFRecipe, gguf_recipe

PROMPT = list(range(5, 25))
OLD_FORM: dict[str, Any] = {"rope_parameters": None, "rope_theta": 5000.0}


def with_config(folder: Path, tmp_path: Path, changes: dict[str, Any]) -> Path:
    """A copy whose config.json has `changes`; a key with None is taken out."""
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    path = copied / "config.json"
    kept = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in kept.items() if value is not None}))
    return copied


POSITIONS: dict[str, dict[str, Any]] = {
    "the base beside the settings": OLD_FORM,
    "the base inside the old settings": OLD_FORM
    | {"rope_scaling": {"rope_type": "default", "rope_theta": 50.0}},
    "old settings that say nothing": OLD_FORM | {"rope_scaling": {}},
    "two spellings of the type": OLD_FORM | {"rope_scaling": {"rope_type": "default", "type": "linear"}},
    "the base beside new settings without one": {
        "rope_parameters": {"rope_type": "default"},
        "rope_theta": 77.0,
    },
    "no base at all": {"rope_parameters": None},
}


@pytest.mark.parametrize("name", POSITIONS)
def test_every_spelling_of_the_positions_means_what_it_means_to_transformers(
    name: str, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = with_config(tiny_folder, tmp_path, POSITIONS[name])
    loaded = load_model(folder)
    kv = ContiguousKV(loaded.config, len(PROMPT), loaded.model.placement)
    ours = loaded.model.forward(ForwardBatch((Span(PROMPT, 0, len(PROMPT)),)), kv)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        torch.testing.assert_close(ours, theirs(torch.tensor([PROMPT])).logits[0], atol=1e-3, rtol=1e-3)


FOLDER_REFUSALS: dict[str, tuple[dict[str, Any], type[RuntimeFault], str]] = {
    "a scaling under its older name": (
        {"rope_parameters": {"type": "linear", "factor": 4.0, "rope_theta": 5000.0}},
        UnsupportedModelFeatureError,
        "rope scaling: .* linear",
    ),
    "settings for each kind of layer": (
        {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0}}},
        UnsupportedModelFeatureError,
        "rope_parameters.full_attention",
    ),
    "layers of another kind": (
        {"layer_types": ["full_attention", "sliding_attention"]},
        UnsupportedModelFeatureError,
        "layer_types.1: .* 'sliding_attention'",
    ),
    "attention that looks ahead": ({"is_causal": False}, UnsupportedModelFeatureError, "is_causal"),
    "an infinite base": ({"rope_theta": math.inf} | {"rope_parameters": None}, ModelFileCorruptError, "inf"),
    "a base of 0": ({"rope_theta": 0} | {"rope_parameters": None}, ModelFileCorruptError, "rope_base"),
    "an infinite epsilon": ({"rms_norm_eps": math.inf}, ModelFileCorruptError, "rms_eps"),
    "an epsilon beyond float32": ({"rms_norm_eps": 1e300}, ModelFileCorruptError, r"1e\+300"),
    "a context of one token": ({"max_position_embeddings": 1}, ModelFileCorruptError, "context_tokens"),
    "layers that are a truth value": (
        {"num_hidden_layers": True},
        ModelFileCorruptError,
        "num_hidden_layers",
    ),
    "a size that is a text": ({"hidden_size": "48"}, ModelFileCorruptError, "hidden_size"),
    "no key-value heads": ({"num_key_value_heads": 0}, ModelFileCorruptError, "kv_heads"),
    "heads of no size": ({"head_dim": 0}, ModelFileCorruptError, "head_dim"),
}


@pytest.mark.parametrize("name", FOLDER_REFUSALS)
def test_a_configuration_that_we_would_compute_wrongly_is_refused(
    name: str, tiny_folder: Path, tmp_path: Path
) -> None:
    changes, error, message = FOLDER_REFUSALS[name]
    with pytest.raises(error, match=message):
        load_model(with_config(tiny_folder, tmp_path, changes))


def test_a_name_of_any_length_makes_a_short_message(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeFault, match="is not supported") as caught:
        load_model(with_config(tiny_folder, tmp_path, {"model_type": "x" * 1_000_000}))
    assert len(str(caught.value)) < 300


def metadata(key: str, value: Any) -> Callable[[GGUFRecipe], object]:
    return lambda recipe: recipe.metadata.update({f"llama.{key}": value})


GGUF_REFUSALS: dict[str, tuple[Callable[[GGUFRecipe], object], type[RuntimeFault], str]] = {
    "a scaling under its older key": (
        metadata("rope.scale_linear", 4.0),
        UnsupportedModelFeatureError,
        "rope scaling: .*scale_linear is 4.0",
    ),
    "a factor on the rotations": (
        metadata("rope.scaling.attn_factor", 2.0),
        UnsupportedModelFeatureError,
        "attn_factor is 2.0",
    ),
    "attention that looks ahead": (
        metadata("attention.causal", 0),
        UnsupportedModelFeatureError,
        "attention.causal is 0",
    ),
    "a scale of the logits": (
        metadata("logit_scale", 8.0),
        UnsupportedModelFeatureError,
        "logit_scale is 8.0",
    ),
    "experts": (metadata("expert_count", 8), UnsupportedModelFeatureError, "expert_count is 8"),
    "a context of one token": (metadata("context_length", 1), ModelFileCorruptError, "context_tokens"),
    "a table of whole numbers": (
        lambda recipe: recipe.tensors.update({"token_embd.weight": np.zeros((300, 48), np.int32)}),
        UnsupportedModelFeatureError,
        r"tensor type I32: token_embd\.weight",
    ),
}


@pytest.mark.parametrize("name", GGUF_REFUSALS)
def test_a_gguf_that_we_would_compute_wrongly_is_refused(
    name: str, tiny_hf: PreTrainedModel, tmp_path: Path
) -> None:
    spoil, error, message = GGUF_REFUSALS[name]
    recipe = gguf_recipe(tiny_hf)
    spoil(recipe)
    with pytest.raises(error, match=message):
        load_model(recipe.write(tmp_path / "spoilt.gguf"))


def test_keys_that_change_nothing_are_taken(tiny_hf: PreTrainedModel, tmp_path: Path) -> None:
    recipe = gguf_recipe(tiny_hf)
    for key, value in [("rope.scaling.factor", 1.0), ("rope.scaling.type", "none"), ("expert_count", 0)]:
        metadata(key, value)(recipe)
    assert load_model(recipe.write(tmp_path / "neutral.gguf")).config.layers == 2


def test_a_long_list_in_place_of_a_number_makes_a_short_message(
    tiny_hf: PreTrainedModel, tmp_path: Path
) -> None:
    recipe = gguf_recipe(tiny_hf)
    metadata("block_count", list(range(100_000)))(recipe)
    with pytest.raises(ModelFileCorruptError, match="not a whole number but") as caught:
        load_model(recipe.write(tmp_path / "long.gguf"))
    assert len(str(caught.value)) < 500
