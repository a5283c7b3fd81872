"""Models by name."""

from pathlib import Path

import pytest

from contract.home import BUILT_IN_MODEL
from device_agent.floor.errors import ModelMissingError
from device_agent.targets.models import model_names, model_path, model_problems


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    (tmp_path / "family").mkdir()
    (tmp_path / "family/config.json").write_text("{}")
    (tmp_path / "no-model").mkdir()
    (tmp_path / "Not A Name.gguf").write_bytes(b"GGUF")
    return tmp_path


def test_files_and_folders_are_found_by_name(folder: Path) -> None:
    assert {"small", "family"} <= set(model_names(folder))
    assert "no-model" not in model_names(folder)
    assert model_path(folder, "small") == folder / "small.gguf"
    assert model_path(folder, "family") == folder / "family"


def test_every_reported_name_resolves(folder: Path) -> None:
    assert all(model_path(folder, name).exists() for name in model_names(folder))


@pytest.mark.parametrize("name", ["absent", "no-model", "../small", "/etc/passwd", "", "a..b"])
def test_what_is_not_there_is_missing_and_the_message_says_what_is(folder: Path, name: str) -> None:
    with pytest.raises(ModelMissingError, match="small"):
        model_path(folder, name)


def test_a_file_in_the_folder_comes_before_the_installed_package(folder: Path) -> None:
    (folder / f"{BUILT_IN_MODEL}.gguf").write_bytes(b"GGUF")
    assert model_path(folder, BUILT_IN_MODEL) == folder / f"{BUILT_IN_MODEL}.gguf"


def test_the_installed_package_s_model_is_used_when_it_is_there(tmp_path: Path) -> None:
    if BUILT_IN_MODEL not in model_names(tmp_path):
        pytest.skip("the demo model is not installed")
    assert model_path(tmp_path, BUILT_IN_MODEL).suffix == ".gguf"


def test_a_models_folder_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    assert "small" not in model_names(tmp_path / "none")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("Qwen2.5-0.5B-Instruct-Q8_0.gguf", "qwen2.5-0.5b-instruct-q8_0"),
        ("SmolLM2-360M-Instruct.Q4_K_M.gguf", "smollm2-360m-instruct.q4_k_m"),
        ("model.GGUF", "model"),
        ("Llama 3.2 1B.gguf", "llama-3.2-1b"),
    ],
)
def test_a_file_named_as_hugging_face_names_it_is_there_under_a_name_that_can_be_said(
    tmp_path: Path, file: str, name: str
) -> None:
    (tmp_path / file).write_bytes(b"GGUF")
    assert name in model_names(tmp_path)
    assert model_path(tmp_path, name) == tmp_path / file


def test_a_folder_with_capitals_is_found_too(tmp_path: Path) -> None:
    (tmp_path / "Qwen2.5-0.5B-Instruct").mkdir()
    (tmp_path / "Qwen2.5-0.5B-Instruct/config.json").write_text("{}")
    assert model_path(tmp_path, "qwen2.5-0.5b-instruct") == tmp_path / "Qwen2.5-0.5B-Instruct"


POINTER = b"version https://git-lfs.example/spec/v1\noid sha256:00\nsize 269060552\n"
ADAPTER = b"GGUF" + bytes(20) + b"general.type" + bytes([8, 0, 0, 0, 7]) + bytes(7) + b"adapter"
USELESS = {
    "tiny-00001-of-00002.gguf": (b"GGUF", "part 1 of 2"),
    "adapter.gguf": (ADAPTER, "LoRA adapter"),
    "pointer.gguf": (POINTER, "git lfs pull"),
    "page.gguf": (b"<!doctype html><html><title>Sign in</title></html>", "web page"),
    "empty.gguf": (b"", "empty"),
    "other.gguf": (b"\x80\x02", "does not begin"),
    "\u00e9\u00e9.gguf": (b"GGUF", "rename it"),
}


@pytest.mark.parametrize("file", USELESS)
def test_what_cannot_be_used_is_told_with_its_reason_and_not_listed(tmp_path: Path, file: str) -> None:
    content, reason = USELESS[file]
    (tmp_path / file).write_bytes(content)
    (found,) = model_problems(tmp_path)
    assert found.file == file
    assert reason in found.problem
    assert set(model_names(tmp_path)) <= {BUILT_IN_MODEL}


def test_a_model_in_one_part_of_one_is_usable(tmp_path: Path) -> None:
    (tmp_path / "one-00001-of-00001.gguf").write_bytes(b"GGUF")
    assert model_problems(tmp_path) == []


def test_a_folder_whose_weights_were_not_fetched_is_told(tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/config.json").write_text("{}")
    (tmp_path / "hf/model.safetensors").write_bytes(POINTER)
    (found,) = model_problems(tmp_path)
    assert (found.file, "git lfs pull" in found.problem) == ("hf", True)


def test_two_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "Model.gguf").write_bytes(b"GGUF")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (found,) = model_problems(tmp_path)
    assert found.file == "Model.gguf"
    assert model_path(tmp_path, "model") == tmp_path / "model.gguf"


def test_a_missing_model_says_what_is_wrong_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_bytes(b"<html>")
    with pytest.raises(ModelMissingError, match="web page"):
        model_path(tmp_path, "page")
