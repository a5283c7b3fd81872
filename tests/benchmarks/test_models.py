"""Both forms of the weights are one model: the runtime reads equal tensors from the folder and from GGUF."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.models import Shape, export
from runtime.model.loader import open_weights
from runtime.model.weights import weight_shapes
from tests.fakes.demo_model import demo_model

TINY = Shape("tiny", 64, 2, 4, 2, 16, 96, is_random=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_folder_and_gguf_hold_equal_weights_and_are_made_once(tmp_path: Path, dtype: str) -> None:
    demo_model()
    folder = export(TINY, dtype, tmp_path / dtype)
    with closing(open_weights(folder / "hf")) as hf, closing(open_weights(folder / "model.gguf")) as gguf:
        # GGUF keeps it in single precision.
        assert hf.config == replace(gguf.config, rms_eps=hf.config.rms_eps)
        assert gguf.config.rms_eps == pytest.approx(hf.config.rms_eps)
        assert (hf.config.layers, hf.config.heads, hf.config.kv_heads, hf.config.ffn) == (2, 4, 2, 96)
        for name, _ in weight_shapes(hf.config):
            assert torch.equal(hf.read(name), gguf.read(name)), name
        text = "The devices wait."
        assert hf.tokenizer().encode(text) == gguf.tokenizer().encode(text)
    made_ns = (folder / "model.gguf").stat().st_mtime_ns
    export(TINY, dtype, folder)
    assert (folder / "model.gguf").stat().st_mtime_ns == made_ns
