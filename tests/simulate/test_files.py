"""Output files are written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from haibun.simulate import OutputFile


def test_nothing_is_seen_before_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with OutputFile(path) as file:
        assert path.read_text() == "old"
        file.write(lambda f: f.write("new"))
        assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


def test_an_error_leaves_what_was_there_and_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")

    def fail(_: object) -> None:
        raise KeyError("oops")

    with pytest.raises(KeyError), OutputFile(path) as file:
        file.write(fail)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_link_stays_a_link_and_the_mode_is_the_usual_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    before = os.umask(0o022)
    try:
        with OutputFile(link) as file:
            file.write(lambda f: f.write("x"))
    finally:
        os.umask(before)
    assert link.is_symlink()
    assert target.read_text() == "x"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_what_is_no_ordinary_file_is_written_to_as_it_is() -> None:
    with OutputFile(Path("/dev/null")) as file:
        file.write(lambda f: f.write("x"))
    assert Path("/dev/null").is_char_device()


def test_a_path_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is a folder"):
        OutputFile(tmp_path)
    with pytest.raises(OSError, match="folder does not exist"):
        OutputFile(tmp_path / "no" / "out")
