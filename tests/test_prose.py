"""`.ci/prose.py`: stilted wording is counted for each file, and no count rises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def prose(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / ".ci" / "prose.py", "--root", root, *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)


def write(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """A project whose README and one module have one place each, which is in the table."""
    (tmp_path / ".ci").mkdir()
    write(tmp_path, "README.md", "# Title\n\nThe reason is told.\n\n```\nit is told in code\n```\n")
    write(
        tmp_path, "src/a.py", '"""Adds.\n\nThe sum is told\n"""\nx = f"nothing {1} here"  # it is told in a comment\n'
    )
    text = "README.md told=1\nsrc/a.py told=1\n"
    write(tmp_path, ".ci/prose.txt", text)
    return tmp_path


def test_equal_counts_pass_and_print_nothing(counted: Path) -> None:
    done = prose(counted)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_count_that_rises_names_file_line_pattern_and_what_to_write(counted: Path) -> None:
    write(counted, "src/b.py", '"""Shows."""\n\nprint(f"rows {1} of "\n      "which {2}")\n')

    done = prose(counted)

    assert done.returncode == 1
    assert "src/b.py: 1 more of 'of-which' than 0; write a second sentence, or 'whose'" in done.stdout
    assert "  src/b.py:3: rows _ of which _" in done.stdout


def test_a_count_that_falls_has_to_be_lowered_by_one_command(counted: Path) -> None:
    write(counted, "README.md", "# Title\n\nThe row shows the reason.\n")

    before, lowered, after = prose(counted), prose(counted, "--lower"), prose(counted)

    assert (before.returncode, lowered.returncode, after.returncode) == (1, 0, 0)
    assert "Lower its counts: make prose" in before.stdout
    assert "README.md" not in (counted / ".ci" / "prose.txt").read_text(encoding="utf-8")


def test_a_new_pattern_is_added_and_an_old_one_is_not_added_again(counted: Path) -> None:
    write(counted, "src/b.py", '"""Shows nothing anew, or once more."""\n')

    first, again = prose(counted, "--add", "anew"), prose(counted, "--add", "told")

    assert (first.returncode, again.returncode) == (1, 2)  # once-more is new as well
    assert "src/b.py: 1 more of 'once-more' than 0" in first.stdout
    assert "counts of 'told', and they only fall" in again.stderr
    (counted / ".ci" / "prose.txt").unlink()
    assert prose(counted, "--add", "all").returncode == 0
    assert "src/b.py anew=1 once-more=1" in (counted / ".ci" / "prose.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("The list of rows, from the first row to the last, shows " + "one more row and " * 6 + "the end.", "length"),
        ("The table shows one row for each case.", "you"),
    ],
)
def test_long_sentences_and_pages_without_you_count(tmp_path: Path, text: str, pattern: str) -> None:
    write(tmp_path, "docs/page.md", f"# Title\n\n{text}\n")

    done = prose(tmp_path)

    assert done.returncode == 1
    assert f"docs/page.md: 1 more of '{pattern}' than 0" in done.stdout
