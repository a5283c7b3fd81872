"""Socket addresses: short enough, private, and the same after a restart."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from device_agent.floor.errors import LaunchError
from device_agent.targets.socket_place import MAX_SOCKET_PATH_BYTES, socket_folder, socket_name

ATTEMPT = "att_01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.parametrize("depth", [1, 40, 90])
def test_every_home_gets_a_short_path_in_a_private_folder(tmp_path: Path, depth: int) -> None:
    home = tmp_path / ("d" * depth)
    home.mkdir()
    folder = socket_folder(home)
    try:
        assert len(os.fsencode(folder / socket_name(ATTEMPT))) <= MAX_SOCKET_PATH_BYTES
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert socket_folder(home) == folder
    finally:
        shutil.rmtree(folder)


def test_different_long_homes_have_different_folders(tmp_path: Path) -> None:
    folders = set()
    for name in ("a", "b"):
        home = tmp_path / (name * 90)
        home.mkdir()
        folders.add(socket_folder(home))
    assert len(folders) == 2
    for folder in folders:
        shutil.rmtree(folder)


def test_a_folder_that_others_could_enter_is_closed(tmp_path: Path) -> None:
    home = tmp_path / ("c" * 90)
    home.mkdir()
    folder = socket_folder(home)
    folder.chmod(0o777)
    assert stat.S_IMODE(socket_folder(home).stat().st_mode) == 0o700
    shutil.rmtree(folder)


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    home = tmp_path / ("e" * 90)
    home.mkdir()
    folder = socket_folder(home)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    try:
        with pytest.raises(LaunchError, match="someone else"):
            socket_folder(home)
    finally:
        folder.unlink()
