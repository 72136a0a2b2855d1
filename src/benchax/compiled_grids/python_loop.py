"""Two ways of benchmarking side by side: a loop in Python that times each call, and the loop inside a compiled grid.

Both run the same functions on the same data, with as many readings. They alternate, round by round, so that both see
the same machine. The comparison separates the first round (tracing and compiling) from the later ones. It also
separates the time of a run by its own clock from the whole time of measuring it: the difference is the cost of
benchmarking.

The Python loop has no limits inside. So functions that the compiled grid has stopped, or could not run, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from benchax.compiled_grids.compiled_result import Circumstances, CompiledGridResult, Status
from benchax.errors import NotMeasured
from benchax.reporting import html, terminal
from benchax.reporting.document import Document, Paragraph, TableColumn, list_lines, tabulate
from benchax.units import seconds

if TYPE_CHECKING:
    from benchax.compiled_grids.compiled import CompiledGrid

PYTHON, COMPILED = "Python loop", "compiled loop"


@dataclass(frozen=True)
class Way:
    """One way of benchmarking: what it took, and what it says."""

    name: str
    first_s: float
    """The first round, with tracing and compiling."""
    took_s: tuple[float, ...]
    """Each further round, from its beginning to its end."""
    runs: int
    """The runs of functions in a round, all in all."""
    run_s: Mapping[tuple[str, str], float | None]
    """The time of a run by this way, by function and data: median over rounds of the medians; None if it has none. For
    the Python loop it is a call, its dispatch and the wait."""

    @property
    def per_run_s(self) -> float:
        """The time of a round for each run in it."""
        return median(self.took_s) / self.runs


@dataclass(frozen=True)
class LoopComparison:
    """The result of `CompiledGrid.compare_python_loop`."""

    python: Way
    compiled: Way
    left_out: Mapping[tuple[str, str], str]
    """Why, by function and data."""
    circumstances: Mapping[str, Circumstances]
    """The conditions of the compiled grid's first round, by data."""
    elapsed_s: float
    """The seconds of the comparison itself."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """The cost of a run in the Python loop over its cost in the compiled one, round by round."""
        pairs = zip(self.python.took_s, self.compiled.took_s, strict=True)
        return tuple(a / self.python.runs / (b / self.compiled.runs) for a, b in pairs)

    def __str__(self) -> str:
        return terminal.to_printed(self.document())

    def _repr_html_(self) -> str:
        return html.fragment(self.document())

    def document(self) -> Document:
        columns = (TableColumn("function", "names"), TableColumn("data", "words"), COMPILED, PYTHON)
        ways = (self.compiled, self.python)
        lines = [(*key, *(_time(way.run_s.get(key)) for way in ways)) for key in self.python.run_s]
        # A spec is its own signature.
        inputs = [f"{label}: {each.inputs}" for label, each in self.circumstances.items() if each.inputs != label]
        where = [*dict.fromkeys(each.machine for each in self.circumstances.values()), *inputs]
        tables = [tabulate(columns, lines), tabulate(_TOTALS, [_totals(way) for way in ways])]
        low, high = min(self.ratios), max(self.ratios)
        answer = (
            f"A run costs {median(self.ratios):.3g} times as much in the Python loop as in the compiled one "
            f"({low:.3g} – {high:.3g} in {len(self.ratios)} rounds)."
        )
        texts = [*(f"{function}, {data}: left out, because {why}" for (function, data), why in self.left_out.items())]
        texts.append(f"The comparison took {self.elapsed_s:.2f} seconds.")
        return Document((Paragraph(answer), *tables, *map(Paragraph, texts), *list_lines(where, "faint")))


_TOTALS = (TableColumn("", "words"), "a round took", "runs in it", "per run", "first round")


def _totals(way: Way) -> tuple[str, ...]:
    return way.name, seconds(median(way.took_s)), f"{way.runs:,}", seconds(way.per_run_s), seconds(way.first_s)


def _time(value: float | None) -> str:
    return "not measured" if value is None else seconds(value)


def compare_loops(h: CompiledGrid, data: Mapping[str, Any], rounds: int) -> LoopComparison:
    """Raises `NotMeasured` if no function can run in both."""
    begun = perf_counter()
    first_compiled_s, results = _time_round(lambda: {label: h(x) for label, x in data.items()})
    left_out = {(name, label): why for label, r in results.items() for name, why in _unfit(r).items()}
    calls = {
        (name, label): (jax.jit(fn), x if type(x) is tuple else (x,))
        for label, x in data.items()
        for name, fn in h.functions.items()
        if (name, label) not in left_out
    }
    if not calls:
        raise NotMeasured("no function ends within its limit: " + "; ".join(left_out.values()))
    first_python_s, _ = _time_round(lambda: {key: _call(f, args, h.repeats) for key, (f, args) in calls.items()})
    python, compiled = [], []
    for k in range(rounds):
        turns = [
            lambda: python.append(_time_round(lambda: {key: _call(*call, h.repeats) for key, call in calls.items()})),
            lambda: compiled.append(_time_round(lambda: {label: h(x) for label, x in data.items()})),
        ]
        # In alternate order, since the second of a round finds caches and threads as the first one left them.
        for turn in turns if k % 2 else turns[::-1]:
            turn()
    return LoopComparison(
        _way(PYTHON, first_python_s, python, len(calls) * h.repeats, calls),
        _way(
            COMPILED,
            first_compiled_s,
            [(took_s, _summaries(found, calls)) for took_s, found in compiled],
            round(median([_runs(found) for _, found in compiled])),
            calls,
        ),
        left_out,
        {label: r.circumstances for label, r in results.items() if r.circumstances},
        perf_counter() - begun,
    )


def _time_round(way: Any) -> tuple[float, Any]:
    begun = perf_counter()
    found = jax.block_until_ready(way())
    return perf_counter() - begun, found


def _call(f: Any, args: tuple[Any, ...], repeats: int) -> float:
    """Median seconds of a call and the wait for it, each timed."""
    times = []
    for _ in range(repeats):
        begun = perf_counter_ns()
        jax.block_until_ready(f(*args))
        times.append(perf_counter_ns() - begun)
    return median(times) / 1e9


def _unfit(r: CompiledGridResult) -> dict[str, str]:
    """Functions that did not end, or did not run, and why."""
    return {
        name: r.why_not_measured(k) or r.status_names[k]
        for k, name in enumerate(r.names)
        if int(r.status[k]) not in (Status.ok, Status.constant)
    }


def _summaries(results: Mapping[str, CompiledGridResult], keys: Any) -> dict[tuple[str, str], float | None]:
    found = {(name, label): results[label].summary(name) for name, label in keys}
    return {key: None if summary is None else summary.median_s for key, summary in found.items()}


def _runs(results: Mapping[str, CompiledGridResult]) -> int:
    return sum(int(np.sum(np.asarray(r.count) * np.asarray(r.runs))) for r in results.values())


def _way(name: str, first_s: float, rounds: Sequence[tuple[float, Any]], runs: int, keys: Any) -> Way:
    readings = {key: [found[key] for _, found in rounds if found[key] is not None] for key in keys}
    medians = {key: median(values) if values else None for key, values in readings.items()}
    return Way(name, first_s, tuple(took_s for took_s, _ in rounds), runs, medians)
