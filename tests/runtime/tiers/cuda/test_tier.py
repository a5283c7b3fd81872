"""When the tier is there, and that nothing but the tier itself needs Triton."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runtime.model.config import ModelConfig
from runtime.model.numeric import ON_CPU, Placement
from runtime.tiers.choice import choose_tier
from runtime.tiers.cuda import tier
from runtime.tiers.cuda.shapes import is_chain_faster, lines_of, power_of_two, tiles_for

needs_no_device = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")


def test_the_runtime_is_imported_without_triton() -> None:
    code = "import sys; sys.modules['triton'] = None; import runtime.measured.cli, runtime.tiers.choice"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@needs_no_device
def test_without_a_device_the_reason_is_named() -> None:
    assert tier.why_not_here(ON_CPU, "auto") in ("Triton is not installed", "no CUDA device")


def test_int8_weights_are_a_reason_too() -> None:
    assert tier.why_not_here(ON_CPU, "int8") == "its kernels do not read int8 weights"


def test_the_cpu_has_no_cuda_tier() -> None:
    assert choose_tier("auto", ON_CPU).name != "cuda"


def test_the_drivers_version_is_read_from_the_system(tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n")
    assert tier._driver_version(file) == "580.159.04"
    assert tier._driver_version(tmp_path / "none") == "unknown"


@pytest.mark.parametrize("hidden", [16, 48, 576, 1536, 4096])
@pytest.mark.parametrize("value_bytes", [2, 4])
@pytest.mark.parametrize("bucket", [1, 8, 16, 32, 64])
def test_every_tile_fits_the_shared_memory_of_any_device(hidden: int, value_bytes: int, bucket: int) -> None:
    config = ModelConfig("llama", hidden, 2, 6, 2, 16, 2 * hidden, 300, 1e4, 1e-5, 512, True)
    tiles = tiles_for(config, bucket, value_bytes)
    for name in ("qkv", "o", "gate_up", "down", "head"):
        tile = getattr(tiles, name)
        rows = tile.block_n * (2 if name == "gate_up" else 1) + max(16, bucket)
        assert rows * tile.block_k * value_bytes * tile.stages <= 160 << 10
        assert tile.lines == power_of_two(tile.lines, 1) or tile.lines == 0


def test_the_lines_of_a_share_cover_it() -> None:
    assert [lines_of(1536, 1), lines_of(576, 1), lines_of(8960, 5), lines_of(100_000, 1)] == [32, 16, 32, 128]


def test_products_in_another_precision_than_bfloat16_are_slower() -> None:
    placement = Placement(torch.float32, torch.device("cuda"))
    assert tier.why_slower(placement) == "it computes in bfloat16, not in float32"


@pytest.mark.parametrize(
    ("hidden", "bucket", "is_faster"),
    [(1536, 1, True), (1536, 32, True), (1536, 64, False), (576, 1, False), (2048, 8, True)],
)
def test_one_kernel_multiplies_where_it_was_faster(hidden: int, bucket: int, is_faster: bool) -> None:
    config = ModelConfig("llama", hidden, 2, 6, 2, 16, 2 * hidden, 300, 1e4, 1e-5, 512, True)
    assert is_chain_faster(config, bucket) == is_faster
