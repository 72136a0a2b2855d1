"""What `.ci/run` runs is every test once, however they are marked."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def expressions(target: str) -> list[str]:
    """What the commands of a target of the Makefile give to `pytest -m`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    return re.findall(r' -m "([^"]+)"', recipe[1])


def in_ci() -> list[str]:
    targets = re.findall(r"^step make (\S+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    return [expression for target in targets for expression in expressions(target)]


@pytest.mark.parametrize(("slow", "serial"), list(product([False, True], repeat=2)))
def test_every_test_runs_once_in_ci(slow: bool, serial: bool) -> None:
    chosen = [each for each in in_ci() if eval(each, {"slow": slow, "serial": serial})]

    assert len(chosen) == 1


def test_what_is_slow_or_serial_has_a_command_of_its_own() -> None:
    assert [eval(each, {"slow": True, "serial": False}) for each in expressions("test")] == [False, False]
    assert [eval(each, {"slow": False, "serial": True}) for each in expressions("test")] == [False, True]


def test_marks_are_where_the_makefile_looks_for_them() -> None:
    helpers = [file for file in (ROOT / "tests").rglob("*.py") if not file.name.startswith("test_")]
    marking = [file for file in helpers if re.search(r"mark\.(slow|serial)", file.read_text(encoding="utf-8"))]

    assert marking == [ROOT / "tests" / "ptjb" / "conftest.py"]
