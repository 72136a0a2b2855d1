"""`load`: stored measurements in Python, without JAX; as arrays and frames where NumPy and pandas are there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from benchax.codec import decode
from benchax.errors import FormatError, StoreError, require
from benchax.model import Measurement, Opaque
from benchax.renderers import SavedAsPage
from benchax.store.database import check_place, commit_range, name_matcher, open_store
from benchax.store.schema import SCALARS, row_of
from benchax.units import plural

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]  # pandas 3.1 has types, but does not say so

DOCUMENT_SUFFIXES = (".jsonl", ".json")

NUMBERS = (
    "iterations",
    "n",
    "median_s",
    "low_s",
    "high_s",
    "compile_s",
    "predicted_peak_bytes",
    "observed_peak_bytes",
)


def load(path: str | os.PathLike[str] = ".benchmarks", case: str | None = None, commit: str | None = None) -> Rows:
    """Stored measurements, oldest first.

    Args:
        path: a folder with benchax.db, a database or its URL, as for `open_store`; or a .jsonl or .json file with one
            document of benchax per line.
        case: the name of a case, or a pattern when it holds * (any text) or ? (any character).
        commit: a commit, in full or its first digits.

    Raises:
        UsageError: `path` is none of these.
        StoreError: there is nothing at `path`, or it cannot be read.
        FormatError: a line of the file is not a document of benchax, or was written by a newer one.

    Example:
        >>> _ = benchax.bench(jnp.sort, "f32[8]", stages="build", store="rows")
        >>> [m.case.name for m in benchax.load("rows", case="s*")]
        ['sort']
    """
    check_place(path)
    if Path(path).suffix in DOCUMENT_SUFFIXES:
        return Rows(tuple(m for m in _documents(Path(path)) if _answers(m, case, commit)))
    return Rows(tuple(open_store(path).query(case=case, commit=commit)))


@dataclass(frozen=True)
class Rows(SavedAsPage, Sequence[Measurement]):
    """Measurements in a row, as `load` gives them. A slice of it is one again.

    Example:
        >>> _ = benchax.bench(jnp.sort, "f32[8]", stages="build", store="rows")
        >>> rows = benchax.load("rows")
        >>> len(rows), rows[-1].signature, rows.to_numpy()["name"].tolist()
        (1, 'f32[8]', ['sort'])
    """

    measurements: tuple[Measurement, ...] = ()

    def __len__(self) -> int:
        return len(self.measurements)

    @overload
    def __getitem__(self, index: int) -> Measurement: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> Measurement | Rows:
        found = self.measurements[index]
        return Rows(found) if isinstance(found, tuple) else found

    def __repr__(self) -> str:
        if not self.measurements:
            return "<Rows: none>"
        cases = plural(len({m.case for m in self.measurements}), "case")
        first, last = self.measurements[0].started_at[:10], self.measurements[-1].started_at[:10]
        return f"<Rows: {plural(len(self), 'measurement')}, {cases}, {first} to {last}>"

    def to_numpy(self) -> np.ndarray[Any, np.dtype[np.void]]:
        """One record per measurement, with the scalars of `store.schema.Row`; times per call, of the headline timer.

        Numbers are float64, counts and bytes too (exact up to 2**53), so that a number that was not measured can be
        NaN: here and in `to_pandas` only. Everything else is an object and loses nothing: texts of any length,
        `params` as a dict, None if unknown.
        """
        # Imported here, because NumPy takes 0.2 s to import.
        import numpy as np  # noqa: PLC0415

        records = [_record(m) for m in self.measurements]
        dtype = np.dtype([(name, np.float64 if name in NUMBERS else np.object_) for name in COLUMNS])
        return np.array([tuple(r[name] for name in COLUMNS) for r in records], dtype)

    def to_pandas(self) -> pd.DataFrame:
        """The columns of `to_numpy` as a frame, and behind them one for each parameter of any case, "params.n", and for
        each kind of work, "tokens_per_s". None, and NaN of rates, where a row has none.

        Raises:
            MissingPackage: pandas is not installed.
        """
        pandas = require("pandas", doing="making a data frame of rows")
        records = self.to_numpy()
        columns: dict[str, Any] = {name: records[name] for name in COLUMNS}
        return pandas.DataFrame(columns | self._parameters() | self._rates())

    def _parameters(self) -> dict[str, list[Any]]:
        """By column; not under their bare names, since "n" is the number of samples."""
        params = [
            # Values that JSON cannot express are their text.
            {name: value.text if isinstance(value, Opaque) else value for name, value in m.case.params}
            for m in self.measurements
        ]
        names = dict.fromkeys(name for each in params for name in each)
        return {f"params.{name}": [each.get(name) for each in params] for name in names}

    def _rates(self) -> dict[str, list[float]]:
        rates = [{rate.what: rate.per_s for rate in m.rates()} for m in self.measurements]
        names = dict.fromkeys(name for each in rates for name in each)
        return {f"{name}_per_s": [each.get(name, float("nan")) for each in rates] for name in names}


COLUMNS = ("name", "params", "variant", "tag", *SCALARS)


def _record(m: Measurement) -> dict[str, Any]:
    row = row_of(m)
    scalars = row._asdict()
    # In a column of floats, NaN is the only way to write "not measured".
    numbers = {name: float("nan") for name in NUMBERS if scalars[name] is None}
    case = {"name": m.case.name, "params": dict(m.case.params), "variant": m.case.variant, "tag": m.case.tag}
    return case | scalars | numbers


def _documents(path: Path) -> Iterator[Measurement]:
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {path}: {error}", "a file with one document of benchax per line") from error
    # Don't use splitlines: it also breaks at characters other than \n, which another JSON writer may leave inside a
    # text.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield decode(line)
            except FormatError as error:
                problem = f"line {number} of {path}: {error.problem}"
                raise FormatError(problem, error.expected, error.hint) from error


def _answers(m: Measurement, case: str | None, commit: str | None) -> bool:
    low, high = commit_range(commit or "")
    is_case = case is None or name_matcher(case)(m.case.name)
    is_commit = commit is None or (m.environment.commit is not None and low <= m.environment.commit < high)
    return is_case and is_commit
