"""`benchax run` with cases that hang and crash: a row for each, and the right exit code."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import warm_python
from command_line import runner

import benchax as package
from benchax.model import Measurement

FILE = """
import os, signal
import benchax, jax

@benchax.benchmark(args=("f32[8]",))
def first(x):
    return x + 1

@benchax.benchmark(args=("f32[8]",))
def hangs_in_python(x):
    while True:
        pass

@benchax.benchmark(args=("f32[8]",))
def hangs_in_xla(x):
    return jax.lax.while_loop(lambda x: x.sum() > -1e30, lambda x: x * 0.5, x)

@benchax.benchmark(args=("f32[8]",))
def crashes(x):
    os.kill(os.getpid(), signal.SIGSEGV)

@benchax.benchmark(args=lambda: (jax.numpy.ones(2**29),))
def takes_too_much(x):
    return x

@benchax.benchmark(args=("f32[8]",))
def last(x):
    return x * 2
"""

SHORT = ("--max-time", "0.02", "--min-time", "0.01", "--no-memory", "--timer", "wall")


def run(folder: Path, *words: str) -> tuple[int, dict[str, Measurement], str]:
    """The exit code, the rows by name, and what was written to stderr."""
    (folder / "bench_it.py").write_text(FILE)
    done = warm_python.run(
        [sys.executable, "-m", "benchax.cli.main", "run", *SHORT, *words],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        timeout=300,
    )
    rows = package.load(folder / ".benchmarks") if (folder / ".benchmarks").exists() else []
    return done.returncode, {row.case.name: row for row in rows}, done.stderr


@pytest.mark.slow
def test_every_case_has_its_row_whatever_the_others_do(project: Path) -> None:
    code, rows, _ = run(project, "--isolate", "--timeout", "1.5", "--memory-limit", "1GiB")

    assert code == 2
    failures = {name: (row.failure.kind, row.failure.stage) for name, row in rows.items() if row.failure}
    assert failures == {
        "hangs_in_python": ("timeout", "trace"),
        "hangs_in_xla": ("timeout", "first run"),
        "crashes": ("crashed", "trace"),
        "takes_too_much": ("out_of_memory", "inputs"),
    }
    assert rows["hangs_in_python"].failure is not None
    # Where it hangs: at `while`, or in its body.
    assert re.search(r"bench_it\.py:1[12]\)", rows["hangs_in_python"].failure.message)
    assert [rows[name].summary("wall") is not None for name in ("first", "last")] == [True, True]
    assert (rows["last"].options.timeout_s, rows["last"].options.memory_limit_bytes) == (1.5, 2**30)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--timeout", "0"], "option 'timeout_s' in the command line cannot be '0'\nexpected a time above 0"),
        (["--timeout", "-1"], "option 'timeout_s' in the command line cannot be '-1'\nexpected a time above 0"),
        (["--timeout", "nan"], "option 'timeout_s' in the command line cannot be 'nan'\nexpected a time"),
        (["--timeout", "inf"], "option 'timeout_s' in the command line cannot be 'inf'\nexpected a time"),
        (
            ["--memory-limit", "much"],
            "option 'memory_limit_bytes' in the command line cannot be 'much'\nexpected a size",
        ),
    ],
)
def test_a_limit_that_is_none_is_refused(
    words: list[str], message: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "bench_it.py").write_text(FILE)

    done = runner(monkeypatch, capsys)("run", *words)

    assert (done.code, done.out) == (2, "")
    assert f"error: {message}" in done.err
    assert not (project / ".benchmarks").exists()
