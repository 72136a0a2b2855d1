"""Timings as structured NumPy, pandas, xarray and CSV. Only here NaN means *not measured*, next to the status."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchax.errors import require

if TYPE_CHECKING:
    from benchax.grids.result import GridResult

FIELDS = (
    ("function", np.object_),
    ("data", np.object_),
    ("i", np.int64),
    ("status", np.object_),
    ("message", np.object_),
    ("elapsed_s", np.float64),
)


def to_structured(g: GridResult) -> np.ndarray[Any, np.dtype[np.void]]:
    """Long form: one record per cell and trial."""
    timings = _timings(g)
    place = {(f, d): (k, j) for k, f in enumerate(g.functions) for j, d in enumerate(g.data)}
    rows = [
        (c.function, c.data, i, c.status, c.message, timings[(*place[c.function, c.data], i)])
        for c in g.cells
        for i in range(g.trials)
    ]
    return np.array(rows, dtype=np.dtype(list(FIELDS)))


def pandas_frame(g: GridResult) -> Any:
    pandas = require("pandas", doing="making a data frame of a grid")
    timings = _timings(g)
    index = pandas.MultiIndex.from_product([list(g.data), range(g.trials)], names=[g.axis, "i"])
    columns = {f"{function} elapsed": timings[k].reshape(-1) for k, function in enumerate(g.functions)}
    return pandas.DataFrame(columns, index=index)


def xarray_dataset(g: GridResult) -> Any:
    xarray = require("xarray", doing="making a labelled array of a grid")
    compile_s = [[_or_nan(g.by_key[f, d].stages.compile_s) for d in g.data] for f in g.functions]
    return xarray.Dataset(
        {
            "elapsed_s": (("function", g.axis, "i"), _timings(g), {"units": "s"}),
            "compile_s": (("function", g.axis), np.array(compile_s, dtype=np.float64), {"units": "s"}),
            "status": (("function", g.axis), g.status.astype(str)),
        },
        coords={"function": list(g.functions), g.axis: list(g.data), "i": list(range(g.trials))},
        attrs={"name": g.name, "run_id": g.run_id},
    )


def write_csv(g: GridResult, path: str | os.PathLike[str]) -> None:
    timings = _timings(g)
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        columns = [f"{function} {what}" for function in g.functions for what in ("elapsed", "status")]
        writer.writerow([g.axis, "i", *columns])
        for j, label in enumerate(g.data):
            for i in range(g.trials):
                cells = [(timings[k, j, i], g.status[k, j]) for k in range(len(g.functions))]
                texts = [text for seconds, status in cells for text in (_text(seconds), status)]
                writer.writerow([label, i, *texts])


def _timings(g: GridResult) -> np.ndarray[Any, Any]:
    # pandas and xarray have no masks; the status beside a NaN says what it stands for.
    return np.ma.filled(g.timings, np.nan)


def _text(seconds: float) -> str:
    # All digits, so that what is read back is the same number.
    return "" if np.isnan(seconds) else repr(float(seconds))


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
