"""The files about the project: what they name is there, versions agree, and no package index is named."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
import yaml

from benchax.cli.main import app

ROOT = Path(__file__).parents[1]
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, TOOLS = CONFIGURATION["project"], CONFIGURATION["tool"]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
# In two parts: this file is searched, too.
INDEXES = ["pypi" + ".org", "python" + "hosted.org", "pypi" + ".python.org", "ana" + "conda.org", "npm" + "js.com"]


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def tracked_texts() -> dict[str, str]:
    """Every text file that git has, or would have, by its path."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    found: dict[str, str] = {}
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file() and b"\0" not in (content := (ROOT / name).read_bytes()):
            found[name] = content.decode("utf-8", "replace")
    return found


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", read("Makefile"), re.MULTILINE))


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchax_ci_matrix", ROOT / ".ci" / "matrix.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_file_names_the_host_of_a_package_index() -> None:
    """Such a link is dead where another index is in use; a project's own page is linked in its place."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no working tree of git")
    texts = tracked_texts()

    named = [f"{name} names {host}" for name, text in texts.items() for host in INDEXES if host in text]

    assert len(texts) > 500
    assert named == []


def test_the_version_to_cite_is_that_of_the_project() -> None:
    citation = load(ROOT / "CITATION.cff")

    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_make_help_lists_every_target() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, encoding="utf-8", check=True
    ).stdout

    assert {line.split()[1] for line in shown.splitlines()} == make_targets()
    assert {"test", "lint", "dist", "matrix"} <= make_targets()


def test_the_workflow_calls_what_is_there() -> None:
    jobs = load(WORKFLOW)["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]

    assert ".ci/run" in commands
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert {command.split()[1] for command in commands if command.startswith("make ")} == {"dist", "matrix"}


def test_the_pairs_of_the_workflow_are_pairs_of_the_matrix(matrix: ModuleType) -> None:
    """Every Python and the oldest and the newest JAX are among them, and CONTRIBUTING.md lists the same."""
    pairs = [
        (pair["python"], pair["jax"]) for pair in load(WORKFLOW)["jobs"]["matrix"]["strategy"]["matrix"]["include"]
    ]
    page = read("CONTRIBUTING.md")

    assert {python for python, _ in pairs} == set(matrix.PYTHONS)
    assert {jax for _, jax in pairs} <= set(matrix.JAXES)
    assert {matrix.JAXES[0], matrix.NEWEST} <= {jax for _, jax in pairs}
    assert [pair for pair in pairs if f"| {pair[0]} | {pair[1]} |" not in page] == []


def test_the_table_for_contributors_names_every_layer() -> None:
    layers = TOOLS["importlinter"]["contracts"][0]["layers"]
    rows = re.findall(r"^\| \d+ \|.*$", read("CONTRIBUTING.md"), re.MULTILINE)

    assert set(re.findall(r"`(\w+)`", "".join(rows))) == set(re.findall(r"\w+", " ".join(layers)))


def test_hooks_before_a_commit_are_those_of_make_lint() -> None:
    hooks = [hook for repo in load(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]

    assert [hook["id"] for hook in hooks] == ["ruff-format", "ruff-check", "layers", "prose", "pyright"]
    for hook in hooks:
        assert hook["language"] == "system"
        assert "make --silent .venv/.lint && .venv/bin/" in hook["entry"]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_names_only_commands_that_there_are(template: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a group
    named = set(re.findall(r"`benchax (\w+)", template.read_text(encoding="utf-8")))

    assert named - commands.keys() == set()
    assert {"name", "description", "body"} <= load(template).keys()


def test_who_reports_something_wrong_is_asked_for_the_environment() -> None:
    asking = [path.stem for path in TEMPLATES if "Output of `benchax env`" in path.read_text(encoding="utf-8")]

    assert asking == ["bug", "number"]


# ---- make matrix ----------------------------------------------------------------------------------------------------


def test_the_subset_of_the_matrix_is_there(matrix: ModuleType) -> None:
    assert [path for path in matrix.SUBSET if not (ROOT / path).exists()] == []


def test_a_python_that_is_not_there_is_said_and_fails_unless_permitted(
    matrix: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--python", "3.99", "--jax", "0.6,newest"]
    codes = matrix.main(asked), matrix.main([*asked, "--permit-missing"])

    said = capsys.readouterr().out
    assert codes == (2, 0)
    text = "Python 3.99, JAX 0.6: missing, not run, because there is no python3.99 on this machine"
    assert said.count(text) == said.count("Python 3.99, JAX newest: missing") == 2


def test_a_pair_that_failed_outweighs_one_that_is_missing(matrix: ModuleType) -> None:
    pair = matrix.Pair("3.12", "0.6")
    failed, missing = matrix.Outcome(pair, "failed", "in the tests"), matrix.Outcome(pair, "missing", "")

    assert matrix.exit_code([missing, failed], True) == 1
    assert matrix.exit_code([matrix.Outcome(pair, "passed", "")], False) == 0


# ---- environments ---------------------------------------------------------------------------------------------------


def write_program(file: Path, script: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_the_newest_python_is_found_where_pyenv_keeps_it(tmp_path: Path) -> None:
    """The program of that name on PATH is a shim, which runs only where pyenv is told to use that version."""
    write_program(tmp_path / "bin" / "python3.13", "exit 127")
    write_program(tmp_path / "bin" / "python3.12", "exit 0")
    newest = write_program(tmp_path / "pyenv" / "versions" / "3.13.1" / "bin" / "python3.13", "exit 0")
    environment = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "pyenv")}

    found = subprocess.run([ROOT / ".ci" / "find_python"], env=environment, capture_output=True, text=True, check=True)

    assert found.stdout.strip() == str(newest)
