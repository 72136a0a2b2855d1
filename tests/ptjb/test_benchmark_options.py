"""What the options `--benchmark-*` permit, the tables that they make and files that they read, without a session."""

from __future__ import annotations

import argparse
import json

import pytest

from benchax.comparing import gate
from benchax.errors import FormatError, UsageError
from pytest_jax_bench import benchmark_plugin, benchmark_reports, options
from pytest_jax_bench.options import BenchmarkSettings


@pytest.mark.parametrize(
    ("text", "limit"), [("min:5%", "run=5%"), ("mean:0.001", "run=1000us"), ("stddev:2e-6", "run=2us")]
)
def test_a_limit_is_one_of_run_times(text: str, limit: str) -> None:
    assert benchmark_plugin._limit(text) == limit
    assert gate.parse(limit)["run"] is not None


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (benchmark_plugin._limit, "speed:5%"),
        (benchmark_plugin._limit, "min"),
        (benchmark_plugin._rounds, "0"),
        (benchmark_plugin._rounds, "2.5"),
        (options.read_seconds, "-1"),
        (options.read_seconds, "nan"),
        (benchmark_plugin._file_name, "a/b"),
        (benchmark_plugin._folder, "elasticsearch+http://host/index"),
        (benchmark_plugin._lower_case(benchmark_plugin.UNITS), "h"),
        (benchmark_plugin._list_of("columns", benchmark_plugin.COLUMNS), "min,speed"),
    ],
)
def test_a_value_that_is_not_permitted_is_quoted(read, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected"):
        options.for_argparse(read)(text)


def record(nodeid: str, times_s: list[float], group: str | None = None, **params: object) -> dict[str, object]:
    own = {"group": group, "param_names": params or None, "param": "-".join(map(str, params.values())) or None}
    row = {"status": "ok", "message": "", "tag": "base"}
    return {"nodeid": nodeid, "row": row, "readings": {"times_s": times_s, "iterations": 1}, "benchmark": own}


A = record("tests/test_x.py::test_a[8]", [3e-6, 1e-6, 2e-6], "g", n=8)
B = record("tests/test_x.py::test_b[8]", [1e-3] * 3, None, n=8)
C = record("tests/test_x.py::test_a[16]", [5e-6] * 3, "g", n=16)


@pytest.mark.parametrize(
    ("by", "titles"),
    [
        (("group",), ["", "g"]),
        (("func",), ["test_a", "test_b"]),
        (("param:n",), ["n=16", "n=8"]),
        (("group", "param"), ["8", "g 16", "g 8"]),
        (("fullfunc",), ["tests/test_x.py::test_a", "tests/test_x.py::test_b"]),
    ],
)
def test_records_are_grouped(by: tuple[str, ...], titles: list[str]) -> None:
    assert [title for title, _ in benchmark_reports.group([A, B, C], BenchmarkSettings(group_by=by))] == titles


@pytest.mark.parametrize(
    ("by", "expected"),
    [("min", [A, C, B]), ("name", [C, A, B]), (None, [B, C, A])],
    ids=["a time", "a name", "neither"],
)
def test_records_are_sorted(by: str | None, expected: list[object]) -> None:
    assert benchmark_reports.sort([B, C, A], by) == expected


@pytest.mark.parametrize(
    ("wanted", "saved", "lines"),
    [
        (
            {"columns": ("min", "median", "ops", "rounds"), "name": "short"},
            None,
            [["Test", "min (µs)", "median (µs)", "ops", "rounds"], ["a[8]", "1.00", "2.00", "500000", "3"]],
        ),
        (
            {"columns": ("min", "iqr")},
            {"tests/test_x.py::test_a[8]": {"min": 2e-6, "median": 4e-6}},
            [
                ["Test", "min (µs)", "iqr (µs)"],
                ["tests/test_x.py::test_a[8] (now)", "1.00", "1.50"],
                ["tests/test_x.py::test_a[8] (saved)", "2.00", ""],
                ["tests/test_x.py::test_a[16] (now)", "5.00", "0"],
            ],
        ),
    ],
)
def test_columns_are_in_one_unit_and_a_saved_run_stands_beside(wanted, saved, lines) -> None:
    found = benchmark_reports.tabulate([A, C], BenchmarkSettings(**wanted), saved)

    shown = [[*found.names], *([cell.text for cell in row] for row in found.rows)]
    assert [line[: len(lines[0])] for line in shown[: len(lines)]] == lines


def test_files_are_numbered_and_found_again(tmp_path) -> None:
    document = {"commit_info": {"id": "abc"}, "benchmarks": []}

    paths = [benchmark_reports.save(tmp_path, BenchmarkSettings(save="one"), document) for _ in range(2)]

    assert [path.name for path in paths] == ["0001_one.json", "0002_one.json"]
    assert benchmark_reports.find(tmp_path, "") == paths[1]
    assert benchmark_reports.find(tmp_path, "0001") == paths[0]
    with pytest.raises(UsageError, match="0003"):
        benchmark_reports.find(tmp_path, "0003")


@pytest.mark.parametrize(
    "document",
    ["{", "[]", {"benchmarks": [{"fullname": "a"}]}, {"benchmarks": [{"fullname": "a", "stats": {"min": 1.0}}]}, {}],
)
def test_a_file_of_another_form_is_refused_in_words(tmp_path, document: object) -> None:
    path = tmp_path / "0001_x.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))

    with pytest.raises(FormatError, match="expected"):
        benchmark_reports.read(path)
