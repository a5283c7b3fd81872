"""The home folder that three roles share."""

from pathlib import Path

from contract.home import HomeFolder, named_model


def test_every_role_means_the_same_places() -> None:
    home = HomeFolder(Path("/h"))
    names = {
        *(home.controller_file, home.admin_token_file, home.log_file, home.models_folder),
        home.attempt_folder("att_01KA0000000000000000000000"),
    }
    assert {str(path) for path in names} == {
        *("/h/controller.json", "/h/admin-token", "/h/farm.log", "/h/models"),
        "/h/agent/attempts/att_01KA0000000000000000000000",
    }


def test_a_model_of_a_name_is_a_file_or_else_a_folder_with_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "config.json").touch()
    assert named_model(tmp_path, "both") == tmp_path / "both"
    (tmp_path / "both.gguf").touch()
    assert named_model(tmp_path, "both") == tmp_path / "both.gguf"
    (tmp_path / "empty").mkdir()
    assert named_model(tmp_path, "empty") is None
    assert named_model(tmp_path, "x" * 5000) is None
