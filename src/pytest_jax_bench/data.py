"""Reading results: `BenchData`, which `measure` returns, and `load_bench_data` with `last_entries_with`, as in
pytest-jax-bench 0.5.0.

The columns and the files are those of `csv/files.py`; here a folder becomes one array, and the text of the parameters
becomes columns.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from benchax import units
from benchax.errors import StoreError, one_of
from benchax.model import Opaque
from pytest_jax_bench.csv.files import files_in, fixed_width, read
from pytest_jax_bench.csv.lines import COLUMNS, decode_parameters
from pytest_jax_bench.csv.lines import decode_parameters as decode_pardict  # noqa: F401  # the names of 0.5.0
from pytest_jax_bench.csv.lines import encode_parameters as encode_pardict  # noqa: F401

if TYPE_CHECKING:
    from benchax.model import Measurement


class NoBenchmarks(StoreError, FileNotFoundError):
    """A folder without a CSV file of the plugin. Also a FileNotFoundError, as in pytest-jax-bench 0.5.0."""


def load_bench_data(
    file: str | os.PathLike[str],
    remove_dirty_mark: bool = True,
    interprete_parameters: bool = False,
    merge_param: bool = False,
) -> Any:
    """Loads the rows of a CSV file, or of all CSV files of the plugin in a folder, as a NumPy structured array.

    Times are in milliseconds, or nan if not measured; bytes and counts are -1 then.

    Args:
        file: a CSV file (of any version), or a folder, which can contain files of other tools as well.
        remove_dirty_mark: "6bc9501+" (with uncommitted changes) becomes "6bc9501".
        interprete_parameters: return `(data, parameters)`, the latter a record array with one column per parameter, or
            None if no row has any. If all values are numbers, the column has numbers, with nan for rows without it.
            Otherwise it has texts, or objects with None.
        merge_param: return one array that has the parameters as columns, too. A parameter with the name of another
            column gets the prefix `param_`.

    Returns:
        The array, or the results described above.

    Raises:
        FileNotFoundError: there is nothing at `file`, or it's a folder without a CSV file of the plugin.
        BenchaxError: the file cannot be read, or is not one of the plugin.
    """
    data = _load(Path(file))
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
    """The last one of all rows that agree in `keys`, ordered by `keys`."""
    columns = [data[key].tolist() for key in keys]
    last = {values: i for i, values in enumerate(zip(*columns, strict=True))}
    return data[[last[values] for values in sorted(last, key=_sortable)]]


def _load(path: Path) -> np.ndarray:
    if path.is_dir():
        if not (files := files_in(path)):
            raise NoBenchmarks(
                f"no CSV files of the plugin in {str(path)!r}",
                "the output folder of the plugin (.benchmarks by default), or a folder in it",
                "pytest writes them when tests with the fixture jax_bench run",
            )
        return np.concatenate([read(f) for f in files])
    if not path.exists():
        raise NoBenchmarks(f"there is no file {str(path)!r}", "a CSV file of the plugin, or the folder of several")
    return read(path)


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
    # A column with gaps is one of floats, which hold no greater integer exactly.
    is_exact = all(type(v) is not int or abs(v) <= 2**53 for v in values)
    if types <= {int, float, object} and types - {object} and is_exact:
        number = int if types == {int} else float
        return np.array([np.nan if v is _ABSENT else v for v in values], number)
    if types == {bool}:
        return np.array(values)
    column = np.empty(len(values), np.object_)
    column[:] = [None if v is _ABSENT else v for v in values]
    return column.astype(f"U{width}") if types == {str} and (width := fixed_width(column)) else column


def _with_columns(data: np.ndarray, columns: dict[str, npt.NDArray[Any]]) -> np.ndarray:
    both = {name: data[name] for name in COLUMNS}
    both |= {f"param_{name}" if name in COLUMNS else name: column for name, column in columns.items()}
    merged = np.zeros(len(data), [(name, column.dtype) for name, column in both.items()])
    for name, column in both.items():
        merged[name] = column
    return merged


# ---- what measure returns --------------------------------------------------------------------------------------


NAME_WIDTH = 12


@dataclass(frozen=True)
class BenchData:
    """`res.jit_median_ms` and every other column; `res.jit` and `res.eager` are benchax Measurements, None where that
    part was not asked for. NaN is no time, -1 is no size."""

    columns: Mapping[str, Any]
    jit: Measurement | None = None
    eager: Measurement | None = None
    name: str = ""
    notes: tuple[str, ...] = ()
    """Facts to know before you trust the numbers."""

    def __getattr__(self, name: str) -> Any:
        columns = self.__dict__.get("columns", {})  # not there yet while being unpickled
        if name in columns:
            return columns[name]
        # pickle and copy ask for methods that an object may have, and go by this error.
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"no column {name!r}\nexpected {one_of(columns, name)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.columns]

    def asdict(self) -> dict[str, Any]:
        """The columns."""
        return dict(self.columns)

    def __str__(self) -> str:
        c = self.columns
        tag = f" #{c['tag']}" if c["tag"] not in ("", "base") else ""
        commit = f"   commit {c['commit']}" if c["commit"] else ""
        run = f", run {c['commit_run']}" if c["commit_run"] >= 0 else ""
        named = [f"  {name:<{NAME_WIDTH}} {text}".rstrip() for name, text in self._lines()]
        return "\n".join([f"{self.name or 'JaxBench'}{tag}{commit}{run}", *named])

    def _lines(self) -> Iterator[tuple[str, str]]:
        c = self.columns
        if c["status"] not in ("ok", ""):
            yield c["status"], c["message"]
        if math.isfinite(total_ms := c["compile_ms"]):
            stages = self.jit.stages if self.jit else None
            parts = {"trace": stages.trace_s, "lower": stages.lower_s, "compile": stages.compile_s} if stages else {}
            text = " + ".join(f"{name} {units.seconds(s)}" for name, s in parts.items() if s is not None)
            yield "compile", f"{units.seconds(total_ms / 1e3)}   {text}"
        for kind, m in (("jit", self.jit), ("eager", self.eager)):
            if math.isfinite(median_ms := c[f"{kind}_median_ms"]):
                yield kind, f"{units.seconds(median_ms / 1e3)}   {self._spread(kind, m)}"
        for label, column in SIZES.items():
            if c[column] >= 0:
                yield label, units.size(c[column])
        for note in self.notes:
            yield "note", note

    def _spread(self, kind: str, m: Measurement | None) -> str:
        c = self.columns
        low, high = c[f"{kind}_low_ms"] / 1e3, c[f"{kind}_high_ms"] / 1e3
        interval = f"{units.seconds_range(low, high)} (95 % interval of the median), " if math.isfinite(low) else ""
        samples = m.headline if m else None
        calls = f" of {samples.iterations} calls" if samples and samples.iterations > 1 else ""
        how = f"{calls}, {samples.timer}" if samples else ""
        return f"{interval}{c[f'{kind}_rounds']} rounds{how}"


SIZES = {
    "jit peak": "jit_peak_bytes",
    "temporary": "jit_temporary_bytes",
    "constants": "jit_constants_bytes",
    "eager peak": "eager_peak_bytes",
}
