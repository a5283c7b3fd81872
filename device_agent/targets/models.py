"""Which models are on this machine, by name: files, folders, and the one that an installed package brings.

What looks like a model and cannot be one is told with its reason. Only names and the first bytes of a file
are looked at: whether the numbers in it are good is the runtime's to find out.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from contract.agent_api import MODEL_PROBLEMS_MAX, ModelProblem
from contract.home import BUILT_IN_MODEL, built_in_model, model_name, named_model
from contract.ids import Name
from device_agent.floor.errors import ModelMissingError

_HEAD_BYTES: Final = 64 << 10
_SHARD: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_ADAPTER_KEY: Final = b"general.type"
_ADAPTER_AT: Final = len(_ADAPTER_KEY) + 12
"""A GGUF string stands behind its key, the number of its type and its length."""


def model_names(folder: Path) -> list[Name]:
    """Every name that `model_path` resolves, sorted."""
    return sorted({name for name, _, problem in _candidates(folder) if name and not problem})


def model_problems(folder: Path) -> list[ModelProblem]:
    """What lies there and cannot be used, by file name; at most MODEL_PROBLEMS_MAX."""
    found = [
        ModelProblem(file=path.name[:200], problem=problem)
        for _, path, problem in _candidates(folder)
        if path is not None and problem
    ]
    return found[:MODEL_PROBLEMS_MAX]


def model_path(folder: Path, name: Name) -> Path:
    """Where the usable model of this name lies; ModelMissingError otherwise, with what is wrong with it."""
    candidates = list(_candidates(folder))
    for each, path, problem in candidates:
        if each == name and not problem:
            return path
    wrong = next((problem for each, _, problem in candidates if each == name), "")
    known = ", ".join(model_names(folder)) or "none"
    raise ModelMissingError(f"no model {name!r} here{f' ({wrong})' if wrong else ''}; there are: {known}")


def _candidates(folder: Path) -> Iterator[tuple[Name | None, Path, str]]:
    """Name, place and what is wrong, "" for nothing. The folder comes before the installed package."""
    names: set[str] = set()
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not (path.suffix.lower() == ".gguf" or (path / "config.json").is_file()):
            continue
        name = model_name(path)
        if name is None:
            yield (
                None,
                path,
                "no name can be made of it; rename it to letters, digits, '-', '_' and '.'",
            )
            continue
        problem = _problem(path)
        if not problem and named_model(folder, name) != path:
            problem = f"another one here has the name {name!r} too; rename one of them"
        yield name, path, problem
        names |= {name} if not problem else set()
    built_in = built_in_model()
    if built_in is not None and BUILT_IN_MODEL not in names:
        yield BUILT_IN_MODEL, built_in, ""


def _problem(path: Path) -> str:
    try:
        if path.is_file():
            return _problem_of_file(path)
        if (path / "adapter_config.json").is_file():
            return "a LoRA adapter is not a model; merge it into its base model"
        texts = [*path.glob("*.safetensors"), path / "tokenizer.json"]
        return next((why for each in texts if each.is_file() and (why := _not_fetched(_head(each)))), "")
    except OSError as error:
        return f"it cannot be read: {error.strerror}"


def _problem_of_file(path: Path) -> str:
    shard = _SHARD.search(path.name)
    if shard and int(shard[2]) > 1:
        part = f"part {int(shard[1])} of {int(shard[2])}"
        return f"{part}; join them: llama-gguf-split --merge FIRST-PART ONE.gguf"
    head = _head(path)
    if not head:
        return "the file is empty; fetch it again"
    if head[:4] != b"GGUF":
        return _not_fetched(head) or "it does not begin as a GGUF file does; fetch it again"
    at = head.find(_ADAPTER_KEY)
    if at >= 0 and head[at + _ADAPTER_AT :].startswith(b"adapter"):
        return "a LoRA adapter is not a model; merge it into its base model"
    return ""


def _not_fetched(head: bytes) -> str:
    if head.startswith(b"version https://git-lfs."):
        return "a Git LFS pointer stands where the weights should; run `git lfs pull`"
    if head.lstrip()[:5].lower() in {b"<!doc", b"<html"}:
        return "a web page was stored instead of the file; fetch it again, signed in if its site asks"
    return ""


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)
