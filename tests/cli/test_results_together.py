"""Options that say where a result goes work together, whatever the command: JSON, data, drawings, and pages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from command_line import Benchax, commands
from comparisons_by_hand import series

from benchax.auditing.evidence import TrialCall
from benchax.results.audit import Checklist, Tick
from benchax.store import comparisons
from benchax.store.database import open_store

FILES = {"--output": "o", "--dir": "d", "--html": "p.html", "--plot": "p.svg", "--csv": "t.csv", "--sarif": "s.sarif"}
"""Option: the file that is written."""
GRID = "def double(x): return x * 2\nfunctions = [double]\ndata = ['f32[4]']\n"
SHORT = ("--stages", "samples", "--timer", "wall", "--max-time", "20ms", "--no-memory", "--store", "off")
FUNCTION = ("jax.numpy:negative", "f32[8]")
PROGRAM = ("--", sys.executable, "train.py")
CASES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "run": ("run", (*FUNCTION, *SHORT), ()),
    "inspect": ("inspect", FUNCTION, ()),
    "history": ("history", ("matmul[n=256]",), ()),
    "audit": ("audit", (*FUNCTION, "--rules", "not-jitted"), ()),
    "audit-program": ("audit", ("--rules", "eager-operations"), PROGRAM),
    "grid": ("grid", ("grid.py", "--store", "off"), ()),
    "compare": ("compare", ("jax.numpy:abs", "jax.numpy:absolute", "f32[8]", "--max-time", "2"), ()),
    "experiment": ("experiment", (*FUNCTION, "--variants", "donate", "--max-time", "2"), ()),
    "checklist": ("checklist", (*FUNCTION, "--max-time", "2"), ()),
    "profile": ("profile", (*FUNCTION, "--runs", "3"), ()),
    "profile-program": ("profile", (), PROGRAM),
    "watch": ("watch", (), PROGRAM),
}
"""Name: (command, words before the options of results, words behind them)."""
QUICK = ("run", "inspect", "history")


def options_of(command: str) -> set[str]:
    """Those that say where the result goes. Of two spellings of one, the first."""
    found = {next(iter({*FILES, "--json"} & {*p.opts}), "") for p in commands().commands[command].params}
    return found - {""}


def test_each_command_with_several_is_tried() -> None:
    several = {name for name in commands().commands if len(options_of(name)) > 1}

    assert several == {command for command, _, _ in CASES.values()}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in CASES])
def test_all_of_them_are_done_at_once(name: str, project: Path, benchax: Benchax) -> None:
    (project / "grid.py").write_text(GRID)
    (project / "train.py").write_text("import jax.numpy as jnp\nprint(jnp.ones(3).sum())\n")
    if name == "history":
        comparisons.append(open_store(project / ".benchmarks"), series([1.0, 1.1]))
    command, before, behind = CASES[name]
    given = options_of(command)
    files = {option: FILES[option] for option in given - {"--json"}}
    words = [*(word for option in files.items() for word in option), *({"--json"} & given)]

    done = benchax(command, *before, *words, *behind)

    assert done.code == 0, done.err
    assert [file for file in files.values() if not (project / file).exists()] == []
    if "--json" in given and not behind and command != "inspect":  # its --output is in place of standard output
        assert [json.loads(line) for line in done.out.splitlines()]
    if "--output" in files and command != "profile":
        assert json.loads((project / "o").read_text())
    if command == "watch":
        assert "<h1>Watch of " in (project / "p.html").read_text(encoding="utf-8")
        assert '"shown"' not in (project / "o").read_text(encoding="utf-8")


# ---- pages of several results -----------------------------------------------------------------------------------

SEVERAL = ("jax.numpy:negative", "f32[{n}]", "-p", "n=4,8")


def test_the_page_has_one_help_text_in_all_commands() -> None:
    found = [p.help for command in commands().commands.values() for p in command.params if p.name == "html"]

    assert (len(found), len(set(found))) == (11, 1)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("command", "options", "texts"),
    [
        pytest.param("run", SHORT, ("<h2>negative[n=4]</h2>", "<h2>negative[n=8]</h2>"), marks=SLOW),
        pytest.param("profile", ("--runs", "3"), ("<h1>2 profiles</h1>",), marks=SLOW),
        ("compiled-grid", ("--repeats", "10"), ("<summary><h2>n=4</h2></summary>", "<summary><h2>n=8</h2></summary>")),
    ],
)
def test_a_page_has_a_part_for_each_case(
    command: str, options: tuple[str, ...], texts: tuple[str, ...], project: Path, benchax: Benchax
) -> None:
    done = benchax(command, *SEVERAL, *options, "--html", "p.html")

    assert done.code == 0
    assert "page written to p.html" in done.err
    assert all(text in (project / "p.html").read_text(encoding="utf-8") for text in texts)


@pytest.mark.slow
def test_a_page_of_a_run_has_its_comparisons_with_eager_calls(project: Path, benchax: Benchax) -> None:
    benchax("run", "jax.numpy:negative", "f32[8]", "--break-even", *SHORT, "--html", "p.html")

    assert "run time of jitted against eager" in (project / "p.html").read_text(encoding="utf-8")


def test_a_run_without_a_case_that_works_is_a_page_all_the_same(project: Path, benchax: Benchax) -> None:
    done = benchax("run", "jax.numpy:dot", "f32[2,3]", "f32[2,3]", *SHORT, "--html", "p.html")

    assert done.code == 2
    assert "1 failed" in (project / "p.html").read_text(encoding="utf-8")


def test_checklists_of_several_functions_are_parts_of_one_page(
    project: Path, benchax: Benchax, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walk(case: object, **_: object) -> tuple[Checklist, TrialCall]:
        ticks = (Tick("Compilation", "Use <jit>", "yes", "nothing found"),)
        return Checklist(case.id.label, "f32[8]", ticks), TrialCall("compiled", None)  # type: ignore[attr-defined]

    monkeypatch.setattr("benchax.auditing.checklist.walk_checklist", walk)

    benchax("checklist", *SEVERAL, "--html", "p.html")

    text = (project / "p.html").read_text(encoding="utf-8")
    assert "<h1>Checklists of 2 functions</h1>" in text
    assert text.count("Use &lt;jit&gt;") == 2


# ---- a wrong result ends the command line with 1 --------------------------------------------------------------------


BENCH = """
import benchax, jax, jax.numpy as jnp

def is_traced(x):
    return isinstance(x, jax.core.Tracer)

def right(x):
    return x * 1.5

def miscompiled(x):
    return x * 1.7 if is_traced(x) else x * 1.5

def other(x):
    return x * 1.08

@benchax.benchmark(args=("bf16[64]",))
def scaled(x):
    return x * 1.0{digits}
"""
TWO = """
import jax

def right(x): return x * 1.5
def other(x): return x * 1.7

functions = [right, other]
data = ["f32[64]"]
"""
BRIEF = ("--max-time", "0.02", "--min-time", "0.01", "--timer", "wall", "--no-memory", "--store", "off")


def process(folder: Path, *words: str, digits: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "bench_scaled.py").write_text(BENCH.format(digits=digits), encoding="utf-8")
    command = [sys.executable, "-c", "from benchax.cli.main import main; main()", *words]
    return warm_python.run(command, cwd=folder, timeout=300)


@pytest.mark.slow
def test_run_ends_with_1_where_the_compiled_result_is_wrong(tmp_path: Path) -> None:
    wrong = process(tmp_path, "run", "bench_scaled.py:miscompiled", "f32[64]", *BRIEF)
    right = process(tmp_path, "run", "bench_scaled.py:right", "f32[64]", *BRIEF)

    assert wrong.returncode == 1, wrong.stderr
    assert "WRONG" in wrong.stdout
    assert (right.returncode, "WRONG" in right.stdout) == (0, False)


@pytest.mark.slow
def test_run_ends_with_2_where_another_case_failed(tmp_path: Path) -> None:
    (tmp_path / "bench_both.py").write_text(
        "import benchax, jax\n"
        "@benchax.benchmark(args=('f32[4]',))\n"
        "def wrong(x): return x + isinstance(x, jax.core.Tracer)\n"
        "@benchax.benchmark(args=('f32[4]',))\n"
        "def broken(x): return 1 / 0\n"
    )

    done = process(tmp_path, "run", "bench_both.py", *BRIEF)

    assert done.returncode == 2


@pytest.mark.slow
def test_rank_ends_with_1_where_a_function_gives_another_result(tmp_path: Path) -> None:
    functions = ("bench_scaled.py:right", "bench_scaled.py:other")

    done = process(tmp_path, "compare", *functions, "bf16[64]", "--max-time", "0.01")

    assert done.returncode == 1, done.stderr
    assert "differs" in done.stdout


@pytest.mark.slow
def test_compare_ends_with_1_where_a_version_gives_another_result_unless_that_is_ignored(tmp_path: Path) -> None:
    assert process(tmp_path, "run", "bench_scaled.py", "--stages", "build").returncode == 0

    same = process(tmp_path, "compare", "last", "--max-time", "0.01")
    other = process(tmp_path, "compare", "last", "--max-time", "0.01", digits="8")
    (tmp_path / "pyproject.toml").write_text('[tool.benchax.gate]\ndiffers = "ignore"\n')
    ignored = process(tmp_path, "compare", "last", "--max-time", "0.01", digits="8")

    assert (same.returncode, other.returncode, ignored.returncode) == (0, 1, 0), other.stderr
    assert "returns a different result from" in " ".join(other.stdout.split())
    assert "result differs (" in other.stdout


@pytest.mark.slow
def test_grid_ends_with_1_where_a_function_differs_from_the_one_that_is_named(tmp_path: Path) -> None:
    """Without a name the functions may differ by design."""
    (tmp_path / "grid.py").write_text(TWO)

    shown = process(tmp_path, "grid", "grid.py", "--store", "off")
    wrong = process(tmp_path, "grid", "grid.py", "--store", "off", "--compare", "right")

    assert "other returns a different result from right" in shown.stdout
    assert (shown.returncode, wrong.returncode) == (0, 1)


@pytest.mark.slow
def test_grid_ends_with_1_where_a_check_refuses_a_result(tmp_path: Path) -> None:
    (tmp_path / "grid.py").write_text(TWO + "def check(output, x): return bool((output == x * 1.5).all())\n")

    done = process(tmp_path, "grid", "grid.py", "--store", "off")

    assert done.returncode == 1
