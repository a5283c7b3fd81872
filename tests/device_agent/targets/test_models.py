"""Models by name."""

from pathlib import Path

import pytest

from contract.home import BUILT_IN_MODEL
from device_agent.floor.errors import ModelMissingError
from device_agent.targets.models import model_names, model_path


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
    assert not {"no-model", "Not A Name"} & set(model_names(folder))
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
