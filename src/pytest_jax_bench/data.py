"""What users read their results with: `load_bench_data` and `last_entries_with`, as in pytest-jax-bench 0.5.0.

The columns and the files are those of `csv/files.py`; here a folder becomes one array, and the text of the parameters
becomes columns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchax.errors import StoreError
from benchax.model import Opaque
from pytest_jax_bench.csv.files import COLUMNS, is_ours, read
from pytest_jax_bench.csv.reading import fixed_width
from pytest_jax_bench.csv.text import decode_parameters
from pytest_jax_bench.csv.text import decode_parameters as decode_pardict  # noqa: F401  # the names of 0.5.0
from pytest_jax_bench.csv.text import encode_parameters as encode_pardict  # noqa: F401


class NoBenchmarks(StoreError, FileNotFoundError):
    """A folder without a CSV file of the plugin. Also a FileNotFoundError, as in pytest-jax-bench 0.5.0."""


def load_bench_data(
    file: str | os.PathLike[str],
    remove_dirty_mark: bool = True,
    interprete_parameters: bool = False,
    merge_param: bool = False,
) -> Any:
    """The rows of a CSV file, or of all CSV files of the plugin in a folder, as a NumPy structured array.

    Times are in milliseconds, nan for those that were not measured; bytes and counts are -1 then.

    Args:
        file: a CSV file (of any version), or a folder, which may hold files of other tools as well.
        remove_dirty_mark: "6bc9501+" (with uncommitted changes) becomes "6bc9501".
        interprete_parameters: return `(data, parameters)`, the latter a record array with one column per parameter,
            or None if no row has any. A column is of numbers where all values are, with nan for rows without it;
            otherwise of texts, or of objects with None.
        merge_param: return one array that has the parameters as columns, too. One that bears the name of another
            column is called `param_` and its name.

    Returns:
        The array, or as said above. None instead of it if there is nothing at `file`.

    Raises:
        FileNotFoundError: a folder without a CSV file of the plugin.
        BenchaxError: the file cannot be read, or is not one of the plugin.
    """
    data = _load(Path(file))
    if data is None:
        return (None, None) if interprete_parameters and not merge_param else None
    if remove_dirty_mark:
        data["commit"] = [commit.rstrip("+") for commit in data["commit"].tolist()]
    if not (interprete_parameters or merge_param):
        return data
    columns = _parameter_columns(data["parameters"].tolist())
    if merge_param:
        return _with_columns(data, columns)
    # Its annotations leave out that names may be a list.
    return data, np.rec.fromarrays([*columns.values()], names=[*columns]) if columns else None  # pyright: ignore


def last_entries_with(data: np.ndarray, keys: Iterable[str] = ("tag",)) -> np.ndarray:
    """Of the rows that agree in `keys` the last one each, ordered by `keys`."""
    columns = [data[key].tolist() for key in keys]
    last = {values: i for i, values in enumerate(zip(*columns, strict=True))}
    return data[[last[values] for values in sorted(last, key=_sortable)]]


def _load(path: Path) -> np.ndarray | None:
    if path.is_dir():
        files = sorted(f for f in path.rglob("*.csv") if f.is_file() and is_ours(f))
        if not files:
            raise NoBenchmarks(
                f"no CSV files of the plugin in {str(path)!r}",
                "the output folder of the plugin (.benchmarks by default), or a folder in it",
                "pytest writes them when tests with the fixture jax_bench run",
            )
        return np.concatenate([read(f) for f in files])
    return read(path) if path.exists() else None


def _sortable(values: Sequence[Any]) -> list[tuple[str, Any]]:
    """Numbers before texts; what cannot be compared by its text."""
    return [
        ("", v) if isinstance(v, int | float) else ("str", v) if isinstance(v, str) else (type(v).__name__, repr(v))
        for v in values
    ]


# ---- parameters -------------------------------------------------------------------------------------------------


def _parameter_columns(texts: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """One column per parameter that any of the rows has."""
    known = {text: decode_parameters(text) for text in dict.fromkeys(texts)}
    names = dict.fromkeys(name for params in known.values() for name in params)
    return {name: _column([known[text].get(name, _ABSENT) for text in texts]) for name in names}


_ABSENT = object()


def _column(values: Sequence[Any]) -> npt.NDArray[Any]:
    """The narrowest column that loses nothing: numbers, texts, or objects."""
    values = [v.text if isinstance(v, Opaque) else v for v in values]
    types = {type(v) for v in values}
    if types <= {int, float, object} and types - {object} and all(_fits(v) for v in values):
        number = int if types == {int} else float
        return np.array([np.nan if v is _ABSENT else v for v in values], number)
    if types == {bool}:
        return np.array(values)
    column = np.empty(len(values), np.object_)
    column[:] = [None if v is _ABSENT else v for v in values]
    return column.astype(f"U{width}") if types == {str} and (width := fixed_width(column)) else column


def _fits(value: Any) -> bool:
    return type(value) is not int or abs(value) <= 2**53


def _with_columns(data: np.ndarray, columns: dict[str, npt.NDArray[Any]]) -> np.ndarray:
    columns = {f"param_{name}" if name in COLUMNS else name: column for name, column in columns.items()}
    merged = np.zeros(len(data), [*data.dtype.descr, *((name, column.dtype) for name, column in columns.items())])
    for name in COLUMNS:
        merged[name] = data[name]
    for name, column in columns.items():
        merged[name] = column
    return merged
