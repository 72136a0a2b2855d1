"""Processes of another version: where they look for modules, and the words that choose their cases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchax.checkouts.launch import Launch, Selection, clean_environ
from benchax.model import Version


def test_modules_are_looked_for_before_among_its_own_and_behind(tmp_path: Path) -> None:
    for name, modules in {"before": ("mine",), "behind": ("mine", "rest")}.items():
        (tmp_path / name).mkdir()
        for module in modules:
            (tmp_path / name / f"{module}.py").write_text(f"WHERE = {name!r}\n")
    launch = Launch(Version("x"), before=(str(tmp_path / "before"),), behind=(str(tmp_path / "behind"),))

    command = launch.command("import mine, rest; print(mine.WHERE, rest.WHERE, argument)", ["a", 1])
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == "before behind ['a', 1]\n"


def test_packages_of_this_program_do_not_reach_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")

    assert "PYTHONPATH" not in clean_environ()
    assert Launch(Version("x")).python == sys.executable


def test_a_selection_is_what_the_command_line_says() -> None:
    chosen = Selection(("a.py",), "fast", ("n=1,2", "m=3"))

    assert chosen.words(["b.py"]) == ["-k", "fast", "-p", "n=1,2", "-p", "m=3", "--", "b.py"]
    assert Selection().words(["."]) == ["--", "."]
