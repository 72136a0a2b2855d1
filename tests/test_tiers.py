"""What `.ci/run` runs is every test once, however they are marked."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def commands(target: str) -> list[tuple[str, str]]:
    """What each command of a target of the Makefile gives to `pytest -m`, and what follows."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    return re.findall(r' -m "([^"]+)"([^&;\n]*)', recipe[1])


def in_ci() -> list[tuple[str, str]]:
    targets = re.findall(r"^step make (\S+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    return [command for target in targets for command in commands(target)]


def reads(folders: str, *, is_cluster: bool) -> bool:
    """Whether a command reads the tests of clusters, or of all other folders."""
    return "--exclude-dir=clusters" not in folders if is_cluster else " tests/clusters " not in folders


@pytest.mark.parametrize(("slow", "serial", "is_cluster"), list(product([False, True], repeat=3)))
def test_every_test_runs_once_in_ci(slow: bool, serial: bool, is_cluster: bool) -> None:
    chosen = [
        expression
        for expression, folders in in_ci()
        if eval(expression, {"slow": slow, "serial": serial}) and reads(folders, is_cluster=is_cluster)
    ]

    assert len(chosen) == 1


def test_what_is_slow_or_serial_has_a_command_of_its_own() -> None:
    assert [eval(each, {"slow": True, "serial": False}) for each, _ in commands("test")] == [False, False]
    assert [eval(each, {"slow": False, "serial": True}) for each, _ in commands("test")] == [False, True]


def test_marks_are_where_the_makefile_looks_for_them() -> None:
    helpers = [file for file in (ROOT / "tests").rglob("*.py") if not file.name.startswith("test_")]
    marking = [file for file in helpers if re.search(r"mark\.(slow|serial)", file.read_text(encoding="utf-8"))]

    assert marking == [ROOT / "tests" / "ptjb" / "conftest.py"]
