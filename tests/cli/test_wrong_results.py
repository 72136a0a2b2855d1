"""A wrong result ends the command line with 1: in `run`, `compare`, `rank` and `grid`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import warm_python

pytestmark = pytest.mark.slow

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
GRID = """
import jax

def right(x): return x * 1.5
def other(x): return x * 1.7

functions = [right, other]
data = ["f32[64]"]
"""
QUICK = ("--max-time", "0.02", "--min-time", "0.01", "--timer", "wall", "--no-memory", "--store", "off")


def benchax(folder: Path, *words: str, digits: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "bench_scaled.py").write_text(BENCH.format(digits=digits), encoding="utf-8")
    command = [sys.executable, "-c", "from benchax.cli.main import main; main()", *words]
    return warm_python.run(command, cwd=folder, timeout=300)


def test_run_ends_with_1_where_the_compiled_result_is_wrong(tmp_path: Path) -> None:
    wrong = benchax(tmp_path, "run", "bench_scaled.py:miscompiled", "f32[64]", *QUICK)
    right = benchax(tmp_path, "run", "bench_scaled.py:right", "f32[64]", *QUICK)

    assert wrong.returncode == 1, wrong.stderr
    assert "WRONG" in wrong.stdout
    assert (right.returncode, "WRONG" in right.stdout) == (0, False)


def test_run_ends_with_2_where_another_case_failed(tmp_path: Path) -> None:
    (tmp_path / "bench_both.py").write_text(
        "import benchax, jax\n"
        "@benchax.benchmark(args=('f32[4]',))\n"
        "def wrong(x): return x + isinstance(x, jax.core.Tracer)\n"
        "@benchax.benchmark(args=('f32[4]',))\n"
        "def broken(x): return 1 / 0\n"
    )

    done = benchax(tmp_path, "run", "bench_both.py", *QUICK)

    assert done.returncode == 2


def test_rank_ends_with_1_where_a_function_gives_another_result(tmp_path: Path) -> None:
    functions = ("bench_scaled.py:right", "bench_scaled.py:other")

    done = benchax(tmp_path, "compare", *functions, "bf16[64]", "--max-time", "0.01")

    assert done.returncode == 1, done.stderr
    assert "differs" in done.stdout


def test_compare_ends_with_1_where_a_version_gives_another_result_unless_that_is_ignored(tmp_path: Path) -> None:
    assert benchax(tmp_path, "run", "bench_scaled.py", "--stages", "build").returncode == 0

    same = benchax(tmp_path, "compare", "last", "--max-time", "0.01")
    other = benchax(tmp_path, "compare", "last", "--max-time", "0.01", digits="8")
    (tmp_path / "pyproject.toml").write_text('[tool.benchax.gate]\ndiffers = "ignore"\n')
    ignored = benchax(tmp_path, "compare", "last", "--max-time", "0.01", digits="8")

    assert (same.returncode, other.returncode, ignored.returncode) == (0, 1, 0), other.stderr
    assert "returns a different result from" in " ".join(other.stdout.split())
    assert "result differs (" in other.stdout


def test_grid_ends_with_1_where_a_function_differs_from_the_one_that_is_named(tmp_path: Path) -> None:
    """Without a name the functions may differ by design."""
    (tmp_path / "grid.py").write_text(GRID)

    shown = benchax(tmp_path, "grid", "grid.py", "--store", "off")
    wrong = benchax(tmp_path, "grid", "grid.py", "--store", "off", "--compare", "right")

    assert "other returns a different result from right" in shown.stdout
    assert (shown.returncode, wrong.returncode) == (0, 1)


def test_grid_ends_with_1_where_a_check_refuses_a_result(tmp_path: Path) -> None:
    (tmp_path / "grid.py").write_text(GRID + "def check(output, x): return bool((output == x * 1.5).all())\n")

    done = benchax(tmp_path, "grid", "grid.py", "--store", "off")

    assert done.returncode == 1
