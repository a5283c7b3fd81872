"""seed-5x2000 in SmolLM2's shape: our arms through `python -m runtime.bench`, and transformers one by one.

For machines that hold no model: random weights, so times only. transformers: generate, bfloat16, KV cache
within a call, nothing reused between calls or agents, its own default attention.

    python benchmarks/cuda/agents.py OUT.json --device cuda
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.work import work_document
from contract.bench import BenchRequest
from contract.jobs import EngineOptions
from contract.rest import WorkloadRequest
from tests.runtime.model.tiny_models import trained_tokenizer
from workloads import compile_request

WORKLOAD = "seed-5x2000"
SEED = 0
SHAPES = {
    "smollm2-135m": (576, 30, 9, 3, 1536, 49152),
    "tiny": (64, 2, 4, 2, 128, 1024),
}


def make_folder(shape: str, folder: Path) -> Path:
    """A Hugging Face folder with random bfloat16 weights."""
    hidden, layers, heads, kv_heads, ffn, vocab = SHAPES[shape]
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=ffn,
        vocab_size=vocab,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
    )
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    trained_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def request_of(folder: Path, device: str, scratch: Path, repeats: int) -> Path:
    """What `dynofarm bench runtime` would ask, in a file."""
    cell = compile_request(WorkloadRequest(name=WORKLOAD, params={}))[0]
    request = BenchRequest(
        workload=cell,
        model=str(folder),
        engine=EngineOptions.model_validate({"device": device, "dtype": "bfloat16"}),
        seed=SEED,
        repeats={"serial": repeats, "serial_cached": repeats, "paged": repeats},
        without_events_repeats=repeats,
        arriving_prefill_repeats=0,
        extra_rounds=0,
        quiet_wait_s=1.0,
        limit_s=280.0,
    )
    path = scratch / "request.json"
    path.write_text(request.model_dump_json())
    return path


def ours(request: Path) -> dict[str, Any]:
    """The bench's own report."""
    command = [sys.executable, "-m", "runtime.bench", "--request", str(request)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def transformers_wall_s(model: Any, work: dict[str, Any], device: str) -> float:
    """Every agent after the other, every call from its first token."""
    began_s = time.perf_counter()
    for agent in work["agents"]:
        context: list[int] = []
        for call in agent["calls"]:
            context += call["tokens"]
            ids = torch.tensor([context], device=device)
            made = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=call["output_tokens"],
                min_new_tokens=call["output_tokens"],
                do_sample=False,
                pad_token_id=0,
            )
            context += made[0, len(context) :].tolist()
    return time.perf_counter() - began_s


def theirs(folder: Path, device: str, repeats: int) -> dict[str, Any]:
    """Walls of transformers after one short call to warm up."""
    cell = compile_request(WorkloadRequest(name=WORKLOAD, params={}))[0]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()
    work = work_document(cell, SEED, model.config.vocab_size)
    model.generate(torch.tensor([work["shared"]], device=device), max_new_tokens=4, do_sample=False)
    walls = [transformers_wall_s(model, work, device) for _ in range(repeats)]
    return {
        "version": transformers.__version__,
        "wall_s": {
            "median": statistics.median(walls),
            "min": min(walls),
            "max": max(walls),
            "n": len(walls),
        },
    }


def main() -> None:
    """Writes one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="smollm2-135m")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--transformers-repeats", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = make_folder(options.shape, Path(scratch) / "model")
        request = request_of(folder, options.device, Path(scratch), options.repeats)
        found: dict[str, Any] = {"workload": WORKLOAD, "shape": options.shape, "device": options.device}
        if options.device == "cuda":
            found["device_name"] = torch.cuda.get_device_name()
        found["ours"] = ours(request)
        options.out.write_text(json.dumps(found, indent=1))
        if options.transformers_repeats:
            found["transformers"] = theirs(folder, options.device, options.transformers_repeats)
            options.out.write_text(json.dumps(found, indent=1))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
