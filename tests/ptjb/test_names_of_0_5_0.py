"""Names that public code imports from pytest-jax-bench 0.5.0, and the way back to it."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from csv_rows_by_hand import a_file, a_row
from pytest_sessions import rows_in

from benchax.errors import UsageError
from pytest_jax_bench import JaxBench, to_0_5_0
from pytest_jax_bench.csv.lines import COLUMNS, KINDS


def test_names_are_where_0_5_0_has_them() -> None:
    from pytest_jax_bench import BenchData as ours
    from pytest_jax_bench.data import BenchData
    from pytest_jax_bench.plots import plot_parametrized_benchmark, prepare_xaxis
    from pytest_jax_bench.plugin import JaxBench as in_plugin
    from pytest_jax_bench.utils import folded_constants_bytes

    assert BenchData is ours
    assert in_plugin is JaxBench
    assert callable(plot_parametrized_benchmark)
    assert callable(prepare_xaxis)
    assert callable(folded_constants_bytes)
    with pytest.raises(ValueError, match="rounds=-1"):  # a UsageError is one
        JaxBench(jit_rounds=-1)


@pytest.mark.parametrize(
    ("dtype", "count"), [("float32", 1024), ("bfloat16", 512), ("complex64", 2048), ("int8", 256), ("bool", 256)]
)
def test_constants_are_counted_in_bytes(dtype: str, count: int) -> None:
    from pytest_jax_bench.utils import folded_constants_bytes

    table = np.arange(256).astype(jnp.dtype(dtype))

    found = folded_constants_bytes(jax.jit(lambda x: x + table).lower(jnp.zeros(256, dtype)))

    assert found == count


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (lambda x, tag: x, (1.0, 2.0), "mine"),  # it has one already
        (lambda x, **rest: x, (1.0,), "mine"),
        (lambda x: x, (1.0,), "mine"),
        (lambda x, tag=0.0: x, (1.0,), None),
        (lambda x, *, tag: x, (1.0,), None),
    ],
)
def test_tag_is_ours_where_the_function_cannot_take_it(fn, args, expected) -> None:
    jb = JaxBench(jit_rounds=1)

    if expected is None:
        with pytest.raises(UsageError, match="an argument of measure and of the function"):
            jb.measure(None, fn, *args, tag="mine", write=False)
    else:
        assert jb.measure(None, fn, *args, tag="mine", write=False)[0].tag == expected


def test_the_way_back_writes_files_that_0_5_0_reads(tmp_path: Path, capsys) -> None:
    old = tmp_path / "old" / "test_a" / "main.csv"
    old.parent.mkdir(parents=True)
    a_file(old, a_row(jit=1.5), a_row(status="timeout"), a_row(tag="two words #", parameters="n-3"))
    before = old.read_bytes()
    assert re.search(rb"^# created: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", before, re.MULTILINE)

    code = to_0_5_0.main([str(tmp_path / "old"), "--into", str(tmp_path / "new")])

    file = tmp_path / "new" / "test_a" / "main.csv"
    said = capsys.readouterr()
    assert (code, said.out) == (0, f"{file}\n")
    assert "1 rows of failures are left out" in said.err
    assert old.read_bytes() == before
    # As 0.5.0 reads it.
    dtype = [(name, {"int": "<i8", "float": "<f8", "text": "U32"}[KINDS[name]]) for name in COLUMNS[:18]]
    read = np.genfromtxt(file, dtype=dtype, comments="#", ndmin=1)
    assert read["tag"].tolist() == ["base", "two%20words%20%23"]
    assert read["jit_mean_ms"].tolist() == [1.5, 1.0]
    assert read["run_id"].tolist() == [0, 2]
    assert [row["jit_mean_ms"] for row in rows_in(file)] == [1.5, 1.0]  # and we can


def test_the_way_back_needs_files_and_another_folder(tmp_path: Path, capsys) -> None:
    assert to_0_5_0.main([str(tmp_path), "--into", str(tmp_path / "x")]) == 1
    a_file(tmp_path / "x.csv", a_row())
    assert to_0_5_0.main([str(tmp_path), "--into", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"no CSV files of the plugin in {str(tmp_path)!r}",
        "--into names the same folder",
    ]


def test_the_plots_of_0_5_0_are_drawn(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    from pytest_jax_bench.data import load_bench_data
    from pytest_jax_bench.plots import plot_parametrized_benchmark, prepare_xaxis

    folder = tmp_path / "tests-test_x.py--test_fft"
    folder.mkdir()
    for n in (8, 16):
        a_file(
            folder / f"n-{n}.csv", *(a_row(jit=float(n), parameters=f"n-{n}", commit=c) for c in ("aaa", "aaa", "bbb"))
        )
    said: list[str] = []

    plot_parametrized_benchmark(str(folder), trep=type("T", (), {"write_line": staticmethod(said.append)}))
    data = load_bench_data(folder / "n-8.csv")
    _, ax = pyplot.subplots()
    x, same, rows = prepare_xaxis(data, "commit", ax)

    assert said == [f"Generated plot {folder / 'n.png'}"]
    assert (folder / "n.png").is_file()
    assert x.tolist() == [0.0, 0.5, 1.0]
    assert same is ax
    assert len(rows) == 3
    assert prepare_xaxis(data, "run", ax)[0].tolist() == [0, 1, 2]
    assert len(prepare_xaxis(data, "tag", ax)[2]) == 1
    with pytest.raises(ValueError, match="unknown xaxis 'nope'"):
        prepare_xaxis(data, "nope", ax)
    pyplot.close("all")
