"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchax.whole_files import hide_from_git, write_whole


def test_the_text_is_written_as_it_is(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "one\r\ntwo\n\ud800 µ")
    assert (tmp_path / "a").read_bytes() == b"one\r\ntwo\n\\ud800 \xc2\xb5"


def test_what_was_there_stays_when_it_cannot_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    file.write_text("before")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, "after")
    assert file.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_the_mode_of_what_was_there_is_kept(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("before")
    file.chmod(mode)
    write_whole(file, "after")
    assert file.stat().st_mode & 0o777 == mode


def test_a_new_file_has_the_mode_of_new_files(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_whole(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        write_whole(tmp_path, "text")


def test_a_link_stays_a_link_and_the_file_that_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")

    write_whole(tmp_path / "link", "text")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_text() == "text"


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As root, `--html /dev/null` put a file in the place of the device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    write_whole(pipe, "text")

    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert [(each.name, each.is_fifo()) for each in tmp_path.iterdir()] == [("pipe", True)]


def test_a_gitignore_that_cannot_be_written_is_not_left_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", fail)
        with pytest.raises(OSError, match="No space left"):
            hide_from_git(tmp_path)
    assert list(tmp_path.iterdir()) == []

    hide_from_git(tmp_path, "benchax.db*")
    hide_from_git(tmp_path)

    assert (tmp_path / ".gitignore").read_text() == "benchax.db*\n"
