"""Every public name has an example in its docstring, which does what it says."""

from __future__ import annotations

import doctest
import inspect
import pathlib
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from git_repositories import git

import benchax

SLOW = {
    "GridResult", "checklist", "compare", "compare_jax",
    "compare_ref", "compare_stored", "experiment", "grid", "profile", "Profile", "CompiledGridResult",
}  # fmt: skip
"""Their examples compare in new processes, or record."""
BENCHMARKS = """
import benchax


@benchax.benchmark(args=("f32[8]",))
def double(x):
    return 2 * x
"""


def _marked(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name


@pytest.fixture
def repository(project: Path) -> Path:
    """What `compare_ref` and its like find in the working folder: benchmarks, a commit and a run."""
    (project / "benchmarks").mkdir()
    (project / "benchmarks" / "bench_double.py").write_text(BENCHMARKS, encoding="utf-8")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        git(project, *words)
    return project


@pytest.mark.parametrize("name", [_marked(name) for name in benchax.__all__])
def test_the_example_of_a_public_name_does_what_it_says(name: str, repository: Path) -> None:
    if name == "compare_stored":
        run = [sys.executable, "-m", "benchax.cli.main", "run", "benchmarks", "--quick"]
        subprocess.run(run, cwd=repository, check=True, capture_output=True)
    given = {"benchax": benchax, "jax": jax, "jnp": jnp, "np": np, "pathlib": pathlib}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(getattr(benchax, name)) or "", given, name, None, None)
    said: list[str] = []

    failed, _ = doctest.DocTestRunner(verbose=False).run(example, out=said.append)

    assert failed == 0, "".join(said)
