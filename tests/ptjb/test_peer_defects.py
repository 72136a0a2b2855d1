"""What was wrong with pytest-jax-bench 0.5.0, defect by defect, and is not to be wrong here.

Numbers are those of the review. Elsewhere: 1, 10, 15, 20, 21, 23, 24 (test_sessions.py), 4, 5 (test_table.py), 8, 17,
19 (test_plots.py), 3, 9 (csv), 11, 16, 18 (test_readme.py); files and texts in test_names_of_0_5_0.py and tests/store.
"""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from pytest_sessions import rows_in

from benchax.watching.compiles import watch_compiles
from pytest_jax_bench import JaxBench

ODD = r"""
VALUES = [
    jnp.float32, lambda x: x, len, "alpha", "beta", True, "True", None, "None", 1, 1.0, "1", -0.5, 1e-9,
    "", " ", "a b", "a,b", "n-1,m-2", "#", "'", '"', "a\nb", "a/b", "../../../../escaped", "x" * 300, "y" * 10_000,
    "é🦊", "a", "A", (1, 2), (1, (2, "x")), [3], {"k": 1}, b"\x00", "CON", "end.", "%20", "main",
]

@pytest.mark.parametrize("p", VALUES)
def test_value(jax_bench, p):
    jax_bench(jit_rounds=1).measure(fn_jit=double, x=jnp.ones(3))

TAGS = ["", " ", "two words", "#", "a\nb", "é", "t" * 40, "t" * 39 + "u", "T" * 40, "a,b"]
TAGS += ["a/b", "None", "nan", '"', "."]

def test_tags(jax_bench):
    jb = jax_bench(jit_rounds=1)
    for tag in TAGS:
        jb.measure(fn_jit=double, x=jnp.ones(3), tag=tag)

def test_arrays():
    pass

@pytest.mark.parametrize("array", [jnp.ones(3), jnp.zeros(3)], ids=["same", "same"])
def test_array(jax_bench, array):
    jax_bench(jit_rounds=1).measure(fn_jit=double, x=array)
"""


def test_any_parameter_and_any_tag_keeps_its_own_history(ptjb) -> None:
    """2, 6, 7, 12, 13, 14: shifted columns, mixed and cut texts, lost rows, files outside of the folder."""
    ptjb.write(test_odd=ODD)
    count = 39
    above = set(ptjb.path.parent.rglob("*escaped*"))  # of tests before this one, which share the folder above

    for run in range(2):
        session = ptjb.run()

        files = list(ptjb.output.rglob("*.csv"))
        parameters = [f for f in files if "test_value" in str(f)]
        assert len(parameters) == count
        for file in files:
            rows = rows_in(file)
            assert {row["run_id"] for row in rows} == set(range(run + 1))
            assert {row["commit_run"] for row in rows} == set(range(run + 1))
            assert all(row["compile_ms"] > 0 and row["jit_mean_ms"] > 0 for row in rows)
            assert all(row["status"] == "ok" and math.isnan(row["eager_mean_ms"]) for row in rows)
        assert len({rows_in(file)[0]["parameters"] for file in parameters}) >= count - 2  # functions go by their names
        assert sum("test_value" in line for line in session.table) == count
        assert sum("test_array[" in line for line in session.table) == 2
    assert all(len(rows_in(file)) == 2 for file in parameters)
    (tags,) = [file for file in files if "test_tags" in str(file)]
    found = [row["tag"] for row in rows_in(tags)]
    assert len(found) == 2 * len(set(found)) == 30
    assert max(map(len, found)) == 40
    escaped = set(ptjb.path.parent.rglob("*escaped*")) - above
    assert [p for p in escaped if ptjb.output not in p.parents] == []


def test_where_warnings_are_errors_a_damaged_row_costs_no_other_and_no_comparison(project, monkeypatch) -> None:
    kept = list[dict[str, Any]]()
    for run in range(2):
        jb = JaxBench(path="x", jit_rounds=20, jit_warmup=1)
        monkeypatch.setattr(jb, "context", replace(jb.context, keep=kept.append))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            res, _ = jb.measure(None, jax.jit(lambda x: x + 1), jnp.ones(4))
        assert res.commit_run == run
        if run == 0:
            with (project / "x.csv").open("a") as file:
                file.write("  0  abc  0  base  None  12.\n")
        else:
            assert kept[-1]["reference"]["run_id"] == 0
            assert "1 damaged line is made a comment" in res.notes[-1]


def test_a_graph_that_cannot_be_drawn_costs_neither_the_row_nor_the_test(project, monkeypatch) -> None:
    from benchax.program import graph

    monkeypatch.setattr(graph, "svg", lambda *_, **__: 1 / 0)

    res, _ = JaxBench(path="x", jit_rounds=1, save_graph=True).measure(None, jax.jit(jnp.sin), jnp.ones(4))

    assert res.notes == ("the graph was not saved (ZeroDivisionError: division by zero)",)
    assert len(rows_in(project / "x.csv")) == 1


def test_no_half_of_a_graph_is_kept(project, monkeypatch) -> None:
    """Its first lines hold the digest, so that the program would never be drawn again."""
    from benchax.program import graph

    resource = pytest.importorskip("resource", reason="limits of files are POSIX")
    jb = JaxBench(path="x", jit_rounds=1, save_graph=True)
    whole = graph.svg
    with monkeypatch.context() as patched:
        patched.setattr(graph, "svg", lambda *args, **kwargs: whole(*args, **kwargs).ljust(1_000_000))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limits[1]))
        try:
            first, _ = jb.measure(None, jax.jit(jnp.sin), jnp.ones(4))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    jb.measure(None, jax.jit(jnp.sin), jnp.ones(4))

    assert first.notes == ("the graph was not saved (OSError: [Errno 27] File too large)",)
    (picture,) = project.glob("x-*.svg")
    assert picture.read_text("utf-8").rstrip().endswith("</svg>")


def test_what_others_have_compiled_stays_compiled(project) -> None:
    """22: jax.clear_caches() in each measurement."""
    warm = jax.jit(lambda x: jnp.sin(x) @ x)
    x = jnp.ones((4, 4))
    warm(x)

    JaxBench(jit_rounds=1, eager_rounds=1).measure(jnp.cos, jax.jit(jnp.cos), x, write=False)

    with watch_compiles() as log:
        warm(x)
    assert not log.was_asked


def test_eager_memory_is_observed_in_the_same_process(project) -> None:
    """24b: -1 on CPU, and elsewhere without --forked."""
    if sys.platform != "linux":
        pytest.skip("resident memory is observed on Linux")
    x = jnp.ones((1024, 1024))  # 4 MiB

    jb = JaxBench(eager_rounds=2, eager_warmup=1)
    small, _ = jb.measure(lambda x: x * 2, None, x, write=False)
    large, _ = jb.measure(lambda x: jnp.concatenate([x] * 8).sum(), None, x, write=False)

    assert 7.5 <= small.eager_peak_bytes / 2**20 < 10
    assert 35.5 <= large.eager_peak_bytes / 2**20 < 46


@pytest.mark.parametrize("loops", [1, 10])
def test_a_measured_function_is_compiled_once(loops: int, project) -> None:
    """25. Inside another program (jit_loops) it is compiled once more, as a part of that."""

    def f(x):
        return jnp.sin(x) + 1

    x = jnp.ones(1000)
    with watch_compiles() as log:
        JaxBench(jit_rounds=3, jit_loops=loops).measure(None, jax.jit(f), x, write=False)

    names = [event.fun_name for event in log.events if event.kind == "compile"]
    if None in names:
        pytest.skip("this JAX does not say what it compiles")
    assert [name for name in names if _plain(name) == "f"] == names[:1]


def _plain(name: str | None) -> str:
    return (name or "").removeprefix("jit(").removesuffix(")").removeprefix("jit_")
