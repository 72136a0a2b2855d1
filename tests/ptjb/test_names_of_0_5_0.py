"""Names that public code imports from pytest-jax-bench 0.5.0, what they return, and the way back to it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from csv_rows_by_hand import a_file, a_row
from hypothesis import given
from hypothesis import strategies as st
from pytest_sessions import rows_in

from benchax.errors import FormatError, UsageError
from pytest_jax_bench import JaxBench, last_entries_with, load_bench_data, to_0_5_0
from pytest_jax_bench.csv.files import append, file_for
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
    assert "without 1 row of failures" in said.err
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
    (tmp_path / "file").write_text("")
    assert to_0_5_0.main([str(tmp_path), "--into", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"no CSV files of the plugin in {str(tmp_path)!r}",
        "--into names the same folder",
        f"error: cannot write to {str(tmp_path / 'file' / 'x.csv')!r}: Not a directory",
        "expected a file that can be written",
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


# ---- `load_bench_data` and `last_entries_with`, as users of pytest-jax-bench 0.5.0 know them ------------------------

GOLDEN = Path(__file__).parents[1] / "golden"


def stored(folder: Path, params: Mapping[str, Any], test: str = "t.py::f", **row: Any) -> Path:
    id = f"[{'-'.join(map(str, params.values()))}]" if params else ""
    path = file_for(folder, f"{test}{id}", params)
    append(path, {"parameters": params, "tag": "base", **row}, nodeid=f"{test}{id}", backend="cpu", device="cpu")
    return path


# ---- files ------------------------------------------------------------------------------------------------------


def test_the_snippet_of_the_documentation(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".benchmarks").mkdir()
    shutil.copy(GOLDEN / "ptjb-readme-17-columns.csv", project / ".benchmarks" / "tests:test_interface::test_full.csv")

    data = load_bench_data(".benchmarks/tests:test_interface::test_full.csv")
    print(data[-2:]["commit"], data[-2:]["jit_mean_ms"], "+-", data[-2:]["jit_std_ms"])  # noqa: T201

    assert capsys.readouterr().out == "['76640ba' '76640ba'] [1.14 0.91] +- [0.41 0.49]\n"
    assert data["commit"].tolist() == ["6bc9501", "6bc9501", "76640ba", "76640ba"]
    kept = load_bench_data(".benchmarks", remove_dirty_mark=False)
    assert kept["commit"][1] == "6bc9501+"


def test_where_there_is_no_file_of_ours_it_is_said(tmp_path: Path) -> None:
    for keyword in ("merge_param", "interprete_parameters"):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            load_bench_data(tmp_path / "nowhere.csv", **{keyword: True})
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FormatError, match=r"other\.csv is not the CSV file of a test"):
        load_bench_data(tmp_path / "other.csv")
    with pytest.raises(FileNotFoundError, match=r"no CSV files of the plugin in '.*'\nexpected the output folder"):
        load_bench_data(tmp_path)


# ---- folders ----------------------------------------------------------------------------------------------------


def test_what_other_tools_keep_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    stored(tmp_path, {})
    (tmp_path / "benchax.db").write_bytes(b"SQLite format 3\0")
    other = tmp_path / "Linux-CPython-3.11-64bit"  # of pytest-benchmark
    other.mkdir()
    (other / "0001_run.json").write_text("{}")
    (other / "exported.csv").write_text("name,min\nf,1\n")
    (tmp_path / "folder.csv").mkdir()

    assert len(load_bench_data(tmp_path)) == 1


# ---- parameters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([128, 256], "i", [128, 256]),
        ([0.5, 2.0], "f", [0.5, 2.0]),
        ([1, 0.5], "f", [1.0, 0.5]),
        ([True, False], "b", [True, False]),
        (["alpha", "beta"], "U", ["alpha", "beta"]),
        (["true", "128"], "U", ["true", "128"]),
        ([None, "None"], "O", [None, "None"]),
        ([(1, 2), (3, 4)], "O", [(1, 2), (3, 4)]),
        (["a,b", "x" * 10_000], "O", ["a,b", "x" * 10_000]),
        ([2**60, 1], "O", [2**60, 1]),
        ([float, int], "U", ["builtins.float", "builtins.int"]),
    ],
)
def test_parameters_have_the_type_that_they_had(
    tmp_path: Path, values: list[Any], kind: str, expected: list[Any]
) -> None:
    files = [stored(tmp_path, {"p": value}) for value in values]

    found = [load_bench_data(file, interprete_parameters=True)[1].p[0] for file in files]
    together = load_bench_data(tmp_path, merge_param=True)["p"]

    assert found == expected
    assert together.dtype.kind == kind
    assert sorted(map(repr, together.tolist())) == sorted(map(repr, expected))


def test_parametrized_and_other_tests_are_loaded_together(tmp_path: Path) -> None:
    """0.5.0 could not: "zero-dimensional arrays cannot be concatenated"."""
    alone = load_bench_data(stored(tmp_path, {}, test="t.py::g"), interprete_parameters=True)
    stored(tmp_path, {"n": 1})

    data, parameters = load_bench_data(tmp_path, interprete_parameters=True)

    assert data["parameters"].tolist() == ["n-1", "None"]
    assert parameters.n.tolist() == [1.0, pytest.approx(np.nan, nan_ok=True)]
    assert (len(alone[0]), alone[1]) == (1, None)


def test_merged_parameters_are_columns_beside_the_others(tmp_path: Path) -> None:
    for n in (8, 16):
        stored(tmp_path, {"n": n, "name": "x"}, jit_mean_ms=n / 2)

    data = load_bench_data(tmp_path, interprete_parameters=True, merge_param=True)

    assert data.dtype.names[-2:] == ("n", "name")
    assert dict(zip(data["n"].tolist(), data["jit_mean_ms"].tolist(), strict=True)) == {8: 4.0, 16: 8.0}
    # A parameter with the name of a column has one of its own.
    tagged = load_bench_data(stored(tmp_path / "tagged", {"tag": 3}), merge_param=True)
    assert (tagged["tag"].tolist(), tagged["param_tag"].tolist()) == (["base"], [3])


# ---- the last entries -------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 3)), max_size=12))
def test_the_last_entries_are_those_of_0_5_0(rows: list[tuple[str, int]]) -> None:
    data = np.array(rows, [("tag", "U1"), ("n", int)])
    keys = ["tag", "n"]
    expected = len(data) - 1 - np.unique(data[keys][::-1], return_index=True)[1]  # as 0.5.0 did it

    assert last_entries_with(data, keys=keys).tolist() == data[expected].tolist()


def test_keys_of_several_types_can_be_ordered(tmp_path: Path) -> None:
    for value in (None, 2, "a", (1,), 0.5):
        stored(tmp_path, {"p": value})

    last = last_entries_with(load_bench_data(tmp_path, merge_param=True), keys=("tag", "p"))

    assert last["p"].tolist()[:2] == [0.5, 2]
    assert len(last) == 5
