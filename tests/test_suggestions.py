"""What somebody meant who gives something else than benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchax.suggestions import suggest_for_file, suggest_for_words


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["train.py"], "benchax profile -- python train.py"),
        (["train.py", "--steps", "3"], "benchax profile -- python train.py --steps 3"),
        (["python train.py"], "benchax profile -- python train.py"),
        (["uv", "run", "train.py"], "benchax profile -- uv run train.py"),
        (["model.py:loss", "f32[8]"], "benchax run model.py:loss 'f32[8]'"),
    ],
)
def test_a_program_and_a_function_are_told_their_command(words: list[str], command: str) -> None:
    assert suggest_for_words(words).endswith(f": {command}")


@pytest.mark.parametrize("words", [[], [""], ["benchmarks"], ["--quick"]])
def test_what_is_neither_gets_no_suggestion(words: list[str]) -> None:
    assert suggest_for_words(words) == ""


def test_a_file_of_functions_is_told_how_one_of_them_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "my model.py"
    file.write_text("def _own(x): ...\n" + "".join(f"def f{i}(x): ...\n" for i in range(5)), encoding="utf-8")

    told = suggest_for_file(file)

    assert told.startswith("a function of it (f0, f1, f2, f3, …) is measured by: benchax run ")
    assert f"'{file}':f0" in told
    assert f"benchax profile -- python '{file}'" in told


@pytest.mark.parametrize("content", ["loss = 3\n", "def f(:\n", "def f(x): '\0'\n"])
def test_of_a_file_without_functions_only_the_program_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "train.py").write_text(content, encoding="utf-8")

    told = suggest_for_file(tmp_path / "train.py")

    assert told == f"where a program spends its time is told by: benchax profile -- python {tmp_path / 'train.py'}"


def test_a_file_of_tests_is_told_of_the_fixture(tmp_path: Path) -> None:
    assert suggest_for_file(tmp_path / "test_speed.py").endswith("test_speed.py --benchax-fixture")
