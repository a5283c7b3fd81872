"""Shapes of published models, without their weights."""

from runtime.model.config import ModelConfig

SMOLLM2 = ModelConfig(
    architecture="llama",
    hidden=576,
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    ffn=1536,
    vocab=49_152,
    rope_base=100_000,
    rms_eps=1e-5,
    context_tokens=8192,
    tied_head=True,
)
"""SmolLM2-135M."""
