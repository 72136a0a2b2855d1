"""Which tests belong to a change, for `make quick`; and that `.ci/run` runs each test once."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from quick import ALWAYS, ROOT, changed_files, choose, find_tests


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("src/benchax/store/schema.py", ["tests/store"]),
        ("src/benchax/auditing/rules/cache_off.py", ["tests/auditing"]),
        ("src/benchax/clock/handlers.c", ["tests/clock"]),
        ("src/benchax/codec.py", ["tests/test_codec.py"]),
        ("src/benchax/__init__.py", ["tests/test_exports.py"]),
        ("src/pytest_jax_bench/plugin.py", ["tests/ptjb"]),
        ("tests/store/test_schema.py", ["tests/store"]),
        ("tests/workers/entries.py", ["tests/workers"]),
        ("tests/test_codec.py", ["tests/test_codec.py"]),
        ("tests/no_longer_there.py", []),
        ("tests/conftest.py", []),
        ("docs/named_by_" + "nobody.md", []),  # this file would name it
    ],
)
def test_a_change_belongs_to_the_tests_named_after_it(changed: str, tests: list[str]) -> None:
    assert tests == find_tests(changed)


@pytest.mark.parametrize(
    ("changed", "test"),
    [
        ("tests/source_tree.py", "tests/test_style.py"),
        ("tests/golden/measurement-v1.json", "tests/test_codec.py"),
        ("src/benchax/protobuf.py", "tests/profiling/test_trace.py"),
        ("examples/gitlab-ci.yml", "tests/test_ci_recipes.py"),
        ("docs/about/requirements.md", "tests/test_docs.py"),
    ],
)
def test_what_no_tests_are_named_after_belongs_to_those_that_name_it(changed: str, test: str) -> None:
    assert test in find_tests(changed)


def test_every_module_has_tests() -> None:
    modules = [str(file.relative_to(ROOT)) for file in (ROOT / "src").rglob("*.py")]

    assert [module for module in modules if not find_tests(module)] == []


def test_without_a_change_the_tests_of_imports_run() -> None:
    assert choose([]) == ALWAYS
    assert all((ROOT / test).is_file() for test in ALWAYS)


def test_changed_is_what_the_branch_did_since_it_left_and_what_is_not_committed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=e@x"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def write(**files: str) -> None:
        for name, text in files.items():
            (tmp_path / name).write_text(text, encoding="utf-8")

    git("init", "-q", "-b", "main")
    write(a="1", b="1", c="1", d="1")
    git("add", "-A")
    git("commit", "-q", "-m", "x")
    git("checkout", "-q", "-b", "change")
    assert changed_files(tmp_path, "main") == []

    write(a="2")
    git("commit", "-q", "-a", "-m", "x")
    git("rm", "-q", "c")
    write(b="2", ignored="1", new="1")
    (tmp_path / ".gitignore").write_text("ignored\n", encoding="utf-8")
    git("checkout", "-q", "main")  # main goes on without us
    write(d="2")
    git("commit", "-q", "-m", "x", "d")
    git("checkout", "-q", "change")

    assert changed_files(tmp_path, "main") == [".gitignore", "a", "b", "c", "new"]


def test_without_the_branch_to_merge_into_nothing_is_guessed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)

    with pytest.raises(SystemExit) as said:
        changed_files(tmp_path, "trunk")

    assert str(said.value).startswith("neither 'trunk' nor 'origin/trunk' is a commit that this branch began from")
    assert "hint: make quick BASE=<branch>" in str(said.value)


# ---- what .ci/run runs, however tests are marked ---------------------------------------------------------------------


@cache
def commands(target: str) -> list[tuple[str, str]]:
    """What each command of a target of the Makefile gives to `pytest -m`, and what follows."""
    shown = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True)
    return re.findall(r' -m "([^"]+)"([^&;\n]*)', shown.stdout)


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
