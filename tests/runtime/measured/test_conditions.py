import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.errors import ModelFileMissingError
from runtime.measured.conditions import model_digest, parameter_count
from tests.fakes.model_shapes import SMOLLM2
from tests.fakes.python_program import said_by


def test_a_file_s_digest_is_its_sha256(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"x" * 3_000_000)
    assert model_digest(tmp_path / "m.gguf") == f"sha256:{hashlib.sha256(b'x' * 3_000_000).hexdigest()}"


def test_a_folder_s_digest_changes_with_every_byte_and_name_of_the_model(tmp_path: Path) -> None:
    digests = set()
    for name, content in [("a", b"1"), ("a", b"2"), ("b", b"2")]:
        for old in tmp_path.iterdir():
            old.unlink()
        (tmp_path / f"{name}.safetensors").write_bytes(content)
        digests.add(model_digest(tmp_path))
    (tmp_path / "README.md").write_text("not part of the model")
    digests.add(model_digest(tmp_path))
    assert len(digests) == 3


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileMissingError, match="nothing"):
        model_digest(tmp_path / "nothing")


def test_what_is_no_ordinary_file_is_never_read(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"1")
    before = model_digest(tmp_path)
    os.mkfifo(tmp_path / "b.json")
    (tmp_path / "c.json").mkdir()
    (tmp_path / "d.json").symlink_to("d.json")
    (tmp_path / "e.json").symlink_to("/dev/zero")
    program = """
        import sys
        from pathlib import Path

        from runtime.measured.conditions import model_digest

        print(model_digest(Path(sys.argv[1])))
    """
    # In a process of its own: one that waits at the pipe could not be ended otherwise.
    assert said_by(program, str(tmp_path)).strip() == before


@pytest.mark.parametrize(("tied", "parameters"), [(True, 134_515_008), (False, 162_826_560)])
def test_parameters_are_counted_as_published(tied: bool, parameters: int) -> None:
    """SmolLM2-135M: 134,515,008 parameters with its tied head."""
    config = replace(SMOLLM2, tied_head=tied)
    assert parameter_count(config) == parameters
