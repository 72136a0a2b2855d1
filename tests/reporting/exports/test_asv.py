"""The folder that asv reads: by its keys (asv 0.6.6, results.py, benchmarks.py, machine.py)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from measurement_strategies import HOST, measured

from benchax.errors import UsageError
from benchax.model import Failure, Measurement, Opaque
from benchax.reporting.asv import COLUMNS, files, merge
from benchax.reporting.exports import entries

DATES = {"c0ffee": 1_700_000_000}


def written(*rows: Measurement) -> dict[str, Any]:
    return {path: json.loads(text) for path, text in files(entries(rows), DATES).items()}


def columns(*rows: Measurement) -> dict[str, Any]:
    """Of the only benchmark, commit, and environment."""
    (found,) = (text for path, text in written(*rows).items() if path.startswith("host/c0ffee-"))
    (row,) = found["results"].values()
    return dict(zip(COLUMNS, row, strict=True))


def f(time_s: float, **params: Any) -> Measurement:
    return measured("f", elapsed_s=(time_s,) * 10, **params)


def test_a_sparse_grid_is_one_axis() -> None:
    """Else a hundred pairs of sizes would have ten thousand cells."""
    rows = [f(float(n), n=n, m=-n) for n in range(1, 31)]

    assert written(*rows)["benchmarks.json"]["f"]["param_names"] == ["n, m"]
    assert columns(*rows)["result"] == [float(n) for n in range(1, 31)]


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


GRID = (f(1.0, n=8, t="a"), f(2.0, n=8, t="b"))
BROKEN = replace(f(1.0, n=16, t="a"), failure=Failure("error", "trace", "no"))
DIRTY = replace(f(2.0), environment=replace(f(2.0).environment, is_dirty=True))
SHOWN = {
    "parameters, of which the last varies fastest": (*GRID, f(3.0, n=16, t="a"), f(4.0, n=16, t="b")),
    "not measured is NaN, failed is null": (
        *GRID,
        replace(f(1.0, n=16, t="a"), failure=Failure("error", "trace", "no")),
    ),
    "values of two types": (f(1.0, n=1), f(2.0, n="1"), f(3.0, n=True), f(4.0, n=Opaque("int", "1")), f(5.0)),
    "an interval": (measured("f", elapsed_s=tuple(map(float, range(1, 20)))),),
    "too few readings for an interval": (measured("f", elapsed_s=(1.0, 2.0)),),
    "a dirty tree is another environment": (f(1.0), DIRTY),
}


@pytest.mark.parametrize("name", SHOWN)
def test_files_have_the_keys_and_places_of_asv_and_no_readings(name: str, snapshot: Any) -> None:
    """asv would take the readings of one process for independent ones."""
    assert files(entries(SHOWN[name]), DATES) == snapshot
