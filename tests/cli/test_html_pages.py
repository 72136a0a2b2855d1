"""`--html FILE`: the same option with the same words and the same promises, whatever the command."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from command_line import Benchax, commands

from benchax.auditing.trial import TrialCall
from benchax.results.audit import Checklist, Tick

FUNCTION = ("jax.numpy:negative", "f32[{n}]", "-p", "n=4,8")
FAST = (
    "--stages",
    "samples",
    "--timer",
    "wall",
    "--max-time",
    "20ms",
    "--no-memory",
    "--processes",
    "1",
    "--store",
    "off",
)


def page(folder: Path, name: str = "p.html") -> str:
    return (folder / name).read_text(encoding="utf-8")


def test_every_command_that_shows_a_result_has_it_with_one_help_text() -> None:
    found = {name: {p.name: p for p in command.params}.get("html") for name, command in commands().commands.items()}

    have = {name for name, option in found.items() if option is not None}
    assert have == {
        "audit", "checklist", "compare", "compiled-grid", "experiment", "grid", "history", "inspect", "profile", "run",
        "watch",
    }  # fmt: skip
    assert len({option.help for option in found.values() if option is not None}) == 1


@pytest.mark.slow
def test_a_run_is_a_page_with_a_part_for_each_case(project: Path, benchax: Benchax) -> None:
    done = benchax("run", *FUNCTION, *FAST, "--html", "p.html")

    assert done.code == 0
    assert "page written to p.html" in done.err
    assert all(f"<h2>negative[n={n}]</h2>" in page(project) for n in (4, 8))


@pytest.mark.slow
def test_a_page_of_a_run_has_its_comparisons_with_eager_calls(project: Path, benchax: Benchax) -> None:
    benchax("run", "jax.numpy:negative", "f32[8]", "--break-even", *FAST, "--html", "p.html")

    assert "run time of jitted against eager" in page(project)


def test_a_run_without_a_case_that_works_is_a_page_all_the_same(project: Path, benchax: Benchax) -> None:
    done = benchax("run", "jax.numpy:dot", "f32[2,3]", "f32[2,3]", *FAST, "--html", "p.html")

    assert done.code == 2
    assert "1 failed" in page(project)


def test_checklists_of_several_functions_are_parts_of_one_page(
    project: Path, benchax: Benchax, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walk(case: object, **_: object) -> tuple[Checklist, TrialCall]:
        ticks = (Tick("Compilation", "Use <jit>", "yes", "nothing found"),)
        return Checklist(case.id.label, "f32[8]", ticks), TrialCall("compiled", None)  # type: ignore[attr-defined]

    monkeypatch.setattr("benchax.auditing.checklist.walk_checklist", walk)

    benchax("checklist", *FUNCTION, "--html", "p.html")

    text = page(project)
    assert "<h1>Checklists of 2 functions</h1>" in text
    assert text.count("Use &lt;jit&gt;") == 2


def test_a_compiled_grid_has_a_part_for_each_value(project: Path, benchax: Benchax) -> None:
    done = benchax("compiled-grid", *FUNCTION, "--repeats", "10", "--html", "p.html")

    assert done.code == 0
    assert all(f"<summary><h2>n={n}</h2></summary>" in page(project) for n in (4, 8))


@pytest.mark.slow
def test_a_watch_is_a_page_of_what_was_compiled(project: Path, benchax: Benchax) -> None:
    program = "import jax, jax.numpy as jnp\nf = jax.jit(lambda x: x + 1)\nf(jnp.ones(3)); f(jnp.ones(4))\n"
    (project / "p.py").write_text(program, encoding="utf-8")

    done = benchax("watch", "--html", "p.html", "-o", "p.json", "--", sys.executable, "p.py")

    assert done.code == 0
    text = page(project)
    assert "<h1>Watch of " in text
    assert "ended with 0" in text
    assert re.search(r"compiled (again|2 times)|2 times|again", text)
    assert '"shown"' not in (project / "p.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_profiles_are_parts_of_one_page(project: Path, benchax: Benchax) -> None:
    done = benchax("profile", *FUNCTION, "--runs", "3", "--html", "p.html")

    assert done.code == 0
    assert "<h1>2 profiles</h1>" in page(project)
