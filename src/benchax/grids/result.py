"""`GridResult` and its cells: the results of a grid, cell by cell, in every available form.

A cell that was not measured holds no number anywhere: arrays are masked there, trees hold `Absent` with the reason.
Only frames and structured arrays, which have no masks, hold NaN, together with the status. `fill` replaces missing
values with the caller's stand-ins, and only on request.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchax.errors import UsageError, one_of, require
from benchax.grids import rendering
from benchax.grids.outputs import clean_arrays, stack_columns
from benchax.grids.plan import Label
from benchax.grids.rendering import GridRanking, NodeShare, rank
from benchax.model import Absent, Measurement, Numerics, Samples, Stages
from benchax.renderers import SelfRendering
from benchax.reporting import figures, terminal
from benchax.stats.summary import Summary
from benchax.whole_files import write_whole

if TYPE_CHECKING:
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]  # pandas 3.1 has types, but does not say so

STATUSES = ("ok", "timeout", "crashed", "out_of_memory", "error", "wrong_shape", "not_run", "interrupted", "node_lost")
_HOW_IT_DIED = re.compile(r"SIG[A-Z]+\d*|exit code -?\d+|the connection was closed")


@dataclass(frozen=True)
class Cell:
    """One function on one data point."""

    function: str
    data: Label
    measurement: Measurement
    """The row, as it is stored."""
    outputs: tuple[Any, ...] | Absent
    """One tree of NumPy arrays per trial."""
    agreement: tuple[Numerics, ...] | Absent
    """How far its outputs are from those of the grid's `reference`, one per trial."""
    spent_s: float = 0.0
    """Everything included: sending, compiling, all calls. 0 for a cell of an earlier run."""

    @property
    def status(self) -> str:
        """One of STATUSES."""
        kind = self.measurement.failure.kind if self.measurement.failure else "ok"
        return kind if kind in STATUSES else "error"

    @property
    def message(self) -> str:
        """timeout in compile: …; crashed: SIGSEGV in run; error: ValueError: …; empty when all went well."""
        failure = self.measurement.failure
        if failure is None:
            return ""
        if failure.kind == "crashed" and (how := _HOW_IT_DIED.search(failure.message)):
            return f"crashed: {how[0]} in {failure.stage}"
        where = f" in {failure.stage}" if failure.kind in ("timeout", "out_of_memory") else ""
        return f"{self.status.replace('_', ' ')}{where}: {failure.message}"

    @property
    def samples(self) -> Samples | None:
        return self.measurement.headline

    @property
    def trials_s(self) -> tuple[tuple[float, ...], ...]:
        """All readings by the first timer, trial by trial; of a failed cell those of the trials that were finished."""
        return _split_trials(self.samples)

    @property
    def elapsed_s(self) -> tuple[float, ...]:
        """Seconds per call, one figure per finished trial: the median of its readings."""
        return self.elapsed_by(None)

    def elapsed_by(self, timer: str | None) -> tuple[float, ...]:
        """`elapsed_s` by another timer; None is the first. Empty if it has no readings."""
        samples = self.samples if timer is None else self.measurement.samples_of(timer)
        return tuple(float(np.median(trial)) for trial in _split_trials(samples))

    @property
    def summary(self) -> Summary | None:
        """Summarises all readings of all trials by the first timer; None for a cell that failed."""
        return self.summary_by(None)

    def summary_by(self, timer: str | None) -> Summary | None:
        """`summary` by another timer; None is the first."""
        return self.measurement.find_summary(timer) if self.measurement.failure is None else None

    @property
    def stages(self) -> Stages:
        return self.measurement.stages


def _split_trials(samples: Samples | None) -> tuple[tuple[float, ...], ...]:
    if samples is None:
        return ()
    ends = np.cumsum(samples.trials or (len(samples.elapsed_s),)).tolist()
    readings = samples.per_call_s
    return tuple(readings[a:b] for a, b in zip([0, *ends], ends, strict=False))


@dataclass(frozen=True)
class GridResult(SelfRendering):
    """The grid: `functions` × `data` × `trials`. `print(g)` and, in a notebook, `g` show it.

    Each cell is a row of the store, too, with stages, the compiler's plan and the remarks that apply; without outputs.

    Example:
        >>> g = benchax.grid([jnp.sin], ["f32[8]"], trials=2, store="off")
        >>> g.timings.shape  # [functions, data, trials]
        (1, 1, 2)
    """

    name: str
    axis: str
    """The name of the data axis: the name of the index in frames."""
    functions: tuple[str, ...]
    data: tuple[Label, ...]
    trials: int
    by_key: Mapping[tuple[str, Label], Cell]
    timeout_s: float | None
    elapsed_s: float
    """The whole grid, everything included."""
    run_id: str
    fill: float | None = None
    clip: tuple[float, float] | None = None
    nan_to_num: bool = False
    reference: str | None = None
    """The function that outputs were compared with."""
    unstored: tuple[Any, ...] = ()
    """(row, error) of the rows that the store would not take."""
    nodes: tuple[NodeShare, ...] = ()
    """Who measured what, where cells were spread over nodes; empty otherwise."""

    # ---- cells

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All cells; the functions of one data point are next to each other. Each has `status`, `message`,
        `measurement`, `trials_s` (every reading), `elapsed_s` (one figure per trial), `outputs` and `agreement`."""
        keys = ((function, label) for label in self.data for function in self.functions)
        return tuple(self.by_key[key] for key in keys if key in self.by_key)

    def cell(self, function: str, data: Label) -> Cell:
        """Raises `UsageError` for a function or a data point that the grid does not have."""
        if function not in self.functions:
            raise UsageError(f"the grid has no function {function!r}", one_of(self.functions, str(function)))
        if data not in self.data:
            raise UsageError(f"the grid has no data point {data!r}", one_of(map(str, self.data), str(data)))
        return self.by_key[function, data]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """One row per cell."""
        return tuple(cell.measurement for cell in self.cells)

    @property
    def is_ok(self) -> bool:
        return all(cell.status == "ok" for cell in self.cells)

    # ---- arrays

    @cached_property
    def status(self) -> np.ndarray[Any, Any]:
        """Texts, [functions, data]."""
        return np.array([[self.by_key[f, d].status for d in self.data] for f in self.functions], dtype=object)

    @cached_property
    def ranking(self) -> GridRanking:
        """Ranks the functions: `by_data[label]` and `overall`. `without` names the functions without a place: they
        failed somewhere, or gave another result than `reference`. Functions whose intervals overlap share a place. The
        overall ranking takes the geometric mean of a function's time as a multiple of the fastest. The ends of its
        interval are the geometric means of the ends."""
        return rank(self)

    @cached_property
    def timer(self) -> str:
        """The timer of `timings`, table and ranking, so that one timer compares all cells. It is the requested timer
        that most cells have readings of; if there are several, the first one. Empty if nothing was measured."""
        counted = Counter(samples.timer for cell in self.cells for samples in cell.measurement.samples)
        return max(counted, key=lambda name: counted[name], default="")

    @cached_property
    def timings(self) -> np.ma.MaskedArray[Any, Any]:
        """Seconds per call by `timer`, [functions, data, trials]; masked if not measured. With `fill`, missing times
        are timeout_s and nothing is masked."""
        return self.timings_by(self.timer or None)

    def timings_by(self, timer: str | None) -> np.ma.MaskedArray[Any, Any]:
        """`timings` by another timer that the grid was measured with; None is the first of each cell.

        Raises:
            UsageError: no cell has readings of it.
        """
        taken = {samples.timer for cell in self.cells for samples in cell.measurement.samples}
        if timer is not None and timer not in taken:
            raise UsageError(f"no cell has readings by {timer!r}", one_of(taken, str(timer)))
        # This includes failed cells: the trials before the failure were measured.
        found = self._of_trials(np.float64, lambda cell: cell.elapsed_by(timer))
        if self.fill is not None and self.timeout_s is not None:
            return np.ma.MaskedArray(found.filled(self.timeout_s), mask=False)
        return found

    @cached_property
    def agreement(self) -> np.ma.MaskedArray[Any, Any]:
        """Does each trial's output agree with that of `reference`? [functions, data, trials]; masked where it was not
        compared. How far apart they are: `cell.agreement`."""

        def agrees(cell: Cell) -> Sequence[bool]:
            return () if isinstance(cell.agreement, Absent) else [each.agrees for each in cell.agreement]

        return self._of_trials(np.bool_, agrees)

    def _of_trials(self, dtype: Any, values_of: Callable[[Cell], Sequence[Any]]) -> np.ma.MaskedArray[Any, Any]:
        """[functions, data, trials] of the values that each cell has; the others are masked."""
        shape = (len(self.functions), len(self.data), self.trials)
        found = np.ma.MaskedArray(np.zeros(shape, dtype), mask=True)
        for i, function in enumerate(self.functions):
            for j, label in enumerate(self.data):
                values = values_of(self.by_key[function, label])
                found[i, j, : len(values)] = values
        return found

    @cached_property
    def outputs(self) -> dict[str, dict[Label, Any]]:
        """outputs[function][data]: an array [trials, …] if every trial gave one array of one shape, else a list of
        trees. They are clipped and without NaN, as requested. A cell without outputs holds `Absent` with the reason, or
        with `fill` the number."""
        return {f: {d: self._outputs(self.by_key[f, d]) for d in self.data} for f in self.functions}

    def _outputs(self, cell: Cell) -> Any:
        if isinstance(cell.outputs, Absent):
            return cell.outputs if self.fill is None else self.fill
        trees = [clean_arrays(tree, self.clip, self.nan_to_num) for tree in cell.outputs]
        is_array = all(isinstance(tree, np.ndarray) for tree in trees)
        return np.stack(trees) if is_array and len({tree.shape for tree in trees}) == 1 else trees

    def stacked(
        self,
        data: Label,
        *,
        trial: int = 0,
        clip: tuple[float, float] | None = None,
        nan_to_num: bool | None = None,
        ones: bool = True,
    ) -> np.ma.MaskedArray[Any, Any]:
        """The outputs of all functions on one data point side by side: [n, functions], and a last column of ones.

        Args:
            clip, nan_to_num: as for the grid, whose own are the default.
            ones: append the column.

        Returns:
            An array whose columns are masked where a cell has no outputs (with `fill`: filled).

        Raises:
            UsageError: outputs that are not arrays of one dimension and one length.
        """
        found = {function: self.cell(function, data).outputs for function in self.functions}
        return stack_columns(
            {name: trees if isinstance(trees, Absent) else trees[trial] for name, trees in found.items()},
            clip=self.clip if clip is None else clip,
            nan_to_num=self.nan_to_num if nan_to_num is None else nan_to_num,
            ones=ones,
            fill=self.fill,
        )  # fmt: skip

    def filled(self, fill: float = 0.0, elapsed_s: float | None = None) -> GridResult:
        """The same with stand-ins: `fill` for outputs that are not there, `elapsed_s` (default: the time limit of a
        call) for timings."""
        limit = self.timeout_s if elapsed_s is None else elapsed_s
        if limit is None:
            raise UsageError("filled() of a grid without timeout_s", "elapsed_s=, which replaces a missing time")
        return replace(self, fill=fill, timeout_s=limit)

    # ---- other forms

    def to_numpy(self) -> np.ndarray[Any, np.dtype[np.void]]:
        """One record per function, data point and trial; `elapsed_s` is NaN where it was not measured (or filled)."""
        timings = self._times()
        rows = [
            (f, d, i, self.by_key[f, d].status, self.by_key[f, d].message, timings[k, j, i])
            for j, d in enumerate(self.data)
            for k, f in enumerate(self.functions)
            for i in range(self.trials)
        ]
        return np.array(rows, dtype=np.dtype(list(_FIELDS)))

    def to_pandas(self) -> pd.DataFrame:
        """Index: the data axis and the trial `i`. Columns: `f1 elapsed`, `f2 elapsed`, …; NaN where not measured.

        Raises:
            MissingPackage: pandas is not installed.
        """
        pandas = require("pandas", doing="making a data frame of a grid")
        timings = self._times()
        index = pandas.MultiIndex.from_product([list(self.data), range(self.trials)], names=[self.axis, "i"])
        columns = {f"{function} elapsed": timings[k].reshape(-1) for k, function in enumerate(self.functions)}
        return pandas.DataFrame(columns, index=index)

    def to_xarray(self) -> Any:
        """A Dataset: `elapsed_s` [function, data axis, i], `status` and `compile_s` [function, data axis].

        Raises:
            MissingPackage: xarray is not installed.
        """
        xarray = require("xarray", doing="making a labelled array of a grid")
        compile_s = [[self.by_key[f, d].stages.compile_s for d in self.data] for f in self.functions]
        return xarray.Dataset(
            {
                "elapsed_s": (("function", self.axis, "i"), self._times(), {"units": "s"}),
                "compile_s": (("function", self.axis), np.array(compile_s, dtype=np.float64), {"units": "s"}),
                "status": (("function", self.axis), self.status.astype(str)),
            },
            coords={"function": list(self.functions), self.axis: list(self.data), "i": list(range(self.trials))},
            attrs={"name": self.name, "run_id": self.run_id},
        )

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """The columns of `to_pandas` and a status per function, as text; an empty field is not measured."""
        timings, text = self._times(), io.StringIO(newline="")
        writer = csv.writer(text)
        columns = [f"{function} {what}" for function in self.functions for what in ("elapsed", "status")]
        writer.writerow([self.axis, "i", *columns])
        for j, label in enumerate(self.data):
            for i in range(self.trials):
                cells = [(_text(timings[k, j, i]), self.status[k, j]) for k in range(len(self.functions))]
                writer.writerow([label, i, *chain.from_iterable(cells)])
        write_whole(Path(path), text.getvalue())

    def _times(self) -> np.ndarray[Any, Any]:
        # pandas and xarray have no masks. The status next to a NaN gives its meaning.
        return np.ma.filled(self.timings, np.nan)

    def table(self) -> str:
        """Medians with their intervals, and what became of the other cells, as text."""
        return terminal.to_text(rendering.document(self))

    def plot(self) -> Any:
        """A matplotlib figure: the grid as a heat map, colour by the logarithm of the median.

        Raises:
            MissingPackage: matplotlib is not installed.
        """
        return figures.draw(rendering.chart(self))


# ---- arrays and tables of other libraries: only here NaN means *not measured*, next to the status ----------------

_FIELDS = (
    ("function", np.object_),
    ("data", np.object_),
    ("i", np.int64),
    ("status", np.object_),
    ("message", np.object_),
    ("elapsed_s", np.float64),
)


def _text(seconds: float) -> str:
    # Write all digits, so that reading gives the same number.
    return "" if np.isnan(seconds) else repr(float(seconds))
