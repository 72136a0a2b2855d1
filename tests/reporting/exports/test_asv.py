"""The folder that asv reads: by its keys (asv 0.6.6, results.py, benchmarks.py, machine.py)."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from measurement_strategies import HOST, measured

from benchax.errors import UsageError
from benchax.model import Failure, Measurement, Opaque, Samples
from benchax.reporting.asv import COLUMNS, files, merge
from benchax.reporting.exports import entries

DATES = {"c0ffee": 1_700_000_000}


def written(*rows: Measurement) -> dict[str, Any]:
    return {path: json.loads(text) for path, text in files(entries(rows), DATES).items()}


def results(*rows: Measurement) -> dict[str, Any]:
    """Of the only commit and environment."""
    (found,) = (text for path, text in written(*rows).items() if path.startswith("host/c0ffee-"))
    return found


def columns(*rows: Measurement) -> dict[str, Any]:
    """Of the only benchmark."""
    (row,) = results(*rows)["results"].values()
    return dict(zip(COLUMNS, row, strict=True))


def f(time_s: float, **params: Any) -> Measurement:
    return measured("f", elapsed_s=(time_s,) * 10, **params)


def test_the_files_are_where_asv_looks_for_them() -> None:
    paths = list(written(f(1.0)))

    assert paths[:2] == ["benchmarks.json", "host/machine.json"]
    assert paths[2] == f"host/c0ffee-benchax-{HOST.fingerprint}.json"


def test_results_have_the_keys_that_asv_requires() -> None:
    found = results(f(1.0))

    required = {"params", "requirements", "commit_hash", "date", "python", "env_name", "results", "result_columns"}
    assert required <= found.keys()
    assert found["version"] == 2
    assert found["params"]["machine"] == "host"
    assert (found["commit_hash"], found["date"]) == ("c0ffee", 1_700_000_000_000)


def test_parameters_are_asvs_parameters_and_the_last_varies_fastest() -> None:
    rows = (f(1.0, n=8, t="a"), f(2.0, n=8, t="b"), f(3.0, n=16, t="a"), f(4.0, n=16, t="b"))

    benchmark = written(*rows)["benchmarks.json"]["f"]
    assert (benchmark["param_names"], benchmark["params"]) == (["n", "t"], [["8", "16"], ["'a'", "'b'"]])
    assert columns(*rows)["result"] == [1.0, 2.0, 3.0, 4.0]


def test_what_was_not_measured_is_skipped_and_what_failed_is_null() -> None:
    failed = replace(f(1.0, n=16, t="a"), failure=Failure("error", "trace", "no"))

    found = columns(f(1.0, n=8, t="a"), f(2.0, n=8, t="b"), failed)

    assert found["result"][:3] == [1.0, 2.0, None]
    assert math.isnan(found["result"][3])
    assert found["stats_repeat"] == [10, 10, None, None]


def test_a_sparse_grid_is_one_axis() -> None:
    """Else a hundred pairs of sizes would have ten thousand cells."""
    rows = [f(float(n), n=n, m=-n) for n in range(1, 31)]

    assert written(*rows)["benchmarks.json"]["f"]["param_names"] == ["n, m"]
    assert columns(*rows)["result"] == [float(n) for n in range(1, 31)]


def test_values_of_two_types_stay_apart() -> None:
    rows = (f(1.0, n=1), f(2.0, n="1"), f(3.0, n=True), f(4.0, n=Opaque("int", "1")), f(5.0))

    assert columns(*rows)["result"] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert columns(*rows)["params"] == [["1", "'1'", "True", "<int 1>", "-"]]


def test_intervals_are_given_and_infinite_where_there_are_too_few_readings() -> None:
    many = columns(measured("f", elapsed_s=tuple(map(float, range(1, 20)))))
    few = columns(measured("f", elapsed_s=(1.0, 2.0)))

    assert (many["stats_ci_99_a"], many["stats_ci_99_b"]) == ([4.0], [16.0])
    assert (few["stats_ci_99_a"], few["stats_ci_99_b"]) == ([-math.inf], [math.inf])
    assert (few["stats_number"], few["stats_repeat"]) == ([1], [2])


def test_a_dirty_tree_is_an_environment_of_its_own() -> None:
    clean, dirty = f(1.0), f(2.0)
    dirty = replace(dirty, environment=replace(dirty.environment, is_dirty=True))

    found = [text for path, text in written(clean, dirty).items() if "c0ffee" in path]

    assert [each["results"]["f"][0] for each in found] == [[1.0], [2.0]]
    assert [each["params"].get("is_dirty") for each in found] == [None, "yes"]


def test_a_host_is_a_folder_inside_the_output() -> None:
    m = replace(f(1.0), environment=replace(HOST, commit="c0ffee", host="../a b/ü"))

    folders = {path.rpartition("/")[0] for path in written(m)}

    assert all(".." not in folder and folder.count("/") == 0 for folder in folders)


def test_rows_outside_of_any_commit_are_refused() -> None:
    m = replace(f(1.0), environment=HOST)

    with pytest.raises(UsageError, match="'f' was measured outside of any commit\nexpected rows with a commit"):
        written(m)


def test_what_the_folder_holds_already_stays() -> None:
    old, new = (files(entries([m]), DATES) for m in (f(1.0), measured("g", elapsed_s=(2.0,))))

    together = {path: json.loads(merge(old[path], new[path])) for path in old}

    (path,) = (path for path in together if "c0ffee" in path)
    assert together["benchmarks.json"].keys() == {"f", "g", "version"}
    assert {name: row[0] for name, row in together[path]["results"].items()} == {"f": [1.0], "g": [2.0]}
    with pytest.raises(UsageError, match="is not JSON"):
        merge("not", "{}")


def test_readings_are_not_given() -> None:
    """asv would take those of one process for independent ones."""
    assert "samples" not in COLUMNS
    assert Samples("wall", 1, (1.0,)).elapsed_s
