"""Options that say where a result goes work together, whatever the command: JSON, data, drawings, and pages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command_line import Benchax, commands
from comparisons_by_hand import series

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
