"""The result of a compiled grid: a pytree of arrays, and methods that read them on the host.

All times are derived from the stamps. Repetitions that did not take place have no time: they are masked in `seconds()`.
They are NaN in `timings`, since compiled code has no masks. Below them: the comparison with a loop in Python.
"""

from __future__ import annotations

import enum
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from benchax.clock.handlers import NEVER, nanoseconds
from benchax.environment import host
from benchax.errors import NotMeasured, UsageError, one_of
from benchax.machine import noise
from benchax.measuring.inputs import signature
from benchax.measuring.paired import take_round
from benchax.measuring.remarks import describe_busy
from benchax.model import Remark
from benchax.reporting import html, terminal
from benchax.reporting.document import Document, Heading, Paragraph, TableColumn, list_lines, list_remarks, tabulate
from benchax.reporting.html import save_page
from benchax.reporting.tables import CASE, describe_machine
from benchax.stats.summary import Summary, summarize
from benchax.units import plural, seconds, seconds_range

if TYPE_CHECKING:
    from benchax.compiled_grids.compiled import CompiledGrid


@dataclass(frozen=True)
class Circumstances:
    """The conditions of one call of a compiled grid. Hashable, since it travels with the arrays of a pytree."""

    inputs: str
    """Shapes and dtypes."""
    machine: str
    busy: Remark | None = None
    """The machine's load by other processes. None if it was idle, or the call too short to measure it (a quarter of a
    second).
    """

    def __str__(self) -> str:
        return f"{self.inputs} · {self.machine}"


def describe_circumstances(args: tuple[Any, ...], begun: noise.Reading) -> Circumstances:
    """Describes a call with `args` on the CPU, which has no other clock, since `begun`."""
    machine = describe_machine(replace(host(), backend="cpu"))
    return Circumstances(signature(args, {}, ()), machine, describe_busy(noise.finish(begun)))


class Status(enum.IntEnum):
    """How it went with a function."""

    ok = 0
    """All repetitions were timed."""
    timed_out = 1
    """Stopped inside of a call, by the limit."""
    stopped = 2
    """Stopped between repetitions, by the limit; those before it were timed."""
    not_run = 3
    """The time was up before its turn came."""
    wrong_shape = 4
    """Not run: its outputs have another structure, shape or dtype than the reference's."""
    error = 5
    """Not run: it cannot be traced."""
    constant = 6
    """Run, not timed: its result does not depend on its inputs, so XLA can compute it once for all repetitions."""


COLUMNS = (
    replace(CASE, name="function"),
    TableColumn("status", "words"),
    "median",
    *(TableColumn(name, is_optional=True) for name in ("95 % interval", "n", "took")),
    TableColumn("", "words", 20),
)
LEAST_SHARE = 0.05
"""A net time below this share of the cost around a run is not believed. Smaller times come and go with the program's
layout in memory, as tests showed."""
NEARBY = 5
"""Repetitions on either side whose readings of nothing are subtracted from one."""
UNKNOWN = "the grid was called inside a jax.jit, whose program is not known here"
LATE_S = 1e-3
"""Later than this after its limit is worth a note: no stop inside a loop comes as late."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("outputs", "timings", "count", "runs", "status", "stamps", "guard", "span"),
    meta_fields=("names", "notes", "guarded", "unstoppable", "clock", "unproved", "circumstances"),
)
@dataclass(frozen=True, eq=False)
class CompiledGridResult:
    """K functions, N repetitions. Inside of `jax.jit` the fields are there; the methods are for outside.

    Example:
        >>> r = benchax.compiled_grid([jnp.sin, jnp.cos], repeats=10)(jnp.ones(8))
        >>> r.seconds().shape
        (2, 10)
    """

    outputs: Any
    """The structure that all functions return, with K in front; `status` tells what is filled in."""
    timings: Any
    """f32[K, N] seconds of a run by the clock, its own cost included; NaN if there was no repetition."""
    count: Any
    """i32[K]: repetitions timed."""
    runs: Any
    """i32[K]: of the function in each of its repetitions; more than one where a run is too short for the clock."""
    status: Any
    """i32[K]: `status_names` has them as texts."""
    stamps: Any
    """u32[K, N, 3, 2]: start, end, and a reading right after the end (ns, low word first); nothing beyond `count`."""
    guard: Any
    """u32[K, 2, 2]: start and end of the run that could be stopped; equal if there was no such run."""
    span: Any
    """u32[K, 3, 2]: when a function's time began, when it was to end, when it did."""
    names: tuple[str, ...]
    notes: tuple[str, ...]
    """Findings of tracing, function by function; empty if there were no findings."""
    guarded: tuple[bool, ...]
    """Functions with loops, which ran once before they were timed."""
    unstoppable: tuple[tuple[str, ...], ...]
    """Operations in each function that no limit stops, as far as it was looked for."""
    clock: str
    """The tier of the clock."""
    unproved: tuple[str, ...] | None = None
    """Why it is not shown that what was timed is the function's work, function by function; empty if it is.
    None: not known, inside a `jax.jit`."""
    circumstances: Circumstances | None = None
    """None: not known, inside a `jax.jit`."""

    @property
    def status_names(self) -> list[str]:
        """ok, timed_out (stopped inside a call), stopped (between repetitions), not_run, wrong_shape, error, or
        constant: its result does not depend on its inputs."""
        return [Status(code).name for code in np.asarray(self.status).tolist()]

    def seconds(self, *, raw: bool = False) -> np.ma.MaskedArray:
        """float64[K, N]: a run in each repetition, net of the cost of the stamps; masked if there was no run.

        Args:
            raw: returns the readings of the clock without correction.

        A net time can be below zero: for a function that costs nothing, the noise of the clock decides the sign.
        """
        net = self._differences(0) - (0 if raw else self._costs_nearby)
        return np.ma.masked_array(net, ~self._is_timed)

    @property
    def stamp_cost_s(self) -> np.ma.MaskedArray:
        """float64[K]: median of a run with nothing in it, taken after each repetition; masked without any."""
        return np.ma.median(np.ma.masked_array(self._differences(1), ~self._is_timed), axis=1)

    @property
    def limit_s(self) -> np.ndarray:
        """float64[K]: how long each function was allowed, its own limit or what was left of that of the whole call."""
        is_limited = (np.asarray(self.span)[:, 1] != NEVER).any(axis=1)
        return np.where(is_limited, (self._span_ns[:, 1] - self._span_ns[:, 0]) / 1e9, np.inf)

    @property
    def elapsed_s(self) -> np.ndarray:
        """float64[K]: how long each function had the machine, with all that is not measured."""
        return (self._span_ns[:, 2] - self._span_ns[:, 0]) / 1e9

    @property
    def total_s(self) -> float:
        """From the beginning of the first function to the end of the last one."""
        return float(self._span_ns[-1, 2] - self._span_ns[0, 0]) / 1e9

    @property
    def guard_s(self) -> np.ma.MaskedArray:
        """float64[K]: the run that could be stopped, whether or not it was; masked if there was no such run.

        This is the time of the rewritten function, not of the function itself.
        """
        ns = nanoseconds(self.guard)
        elapsed = ns[:, 1] - ns[:, 0]
        return np.ma.masked_array(elapsed / 1e9, ~np.array(self.guarded) | (elapsed == 0))

    def summary(self, k: int | str) -> Summary | None:
        """Summarises function `k`, by place or name: seconds net of the stamps' cost. None if `why_not_measured(k)`."""
        k = self._place(k)
        return None if self.why_not_measured(k) else self._summaries[k]

    def why_not_measured(self, k: int | str) -> str | None:
        """Completes "not measured, because …"; None for a function that has a time."""
        k = self._place(k)
        summary, status = self._summaries[k], Status(int(self.status[k]))
        if summary and self.unproved and self.unproved[k]:
            return self.unproved[k]
        if summary:
            return self._why_not_believed(summary, float(self.stamp_cost_s[k]))
        if status == Status.stopped and not self.guarded[k]:
            return f"there was no time for a long enough reading within {seconds(float(self.limit_s[k]))}"
        return {
            Status.timed_out: f"a single call did not end within {seconds(float(self.limit_s[k]))}",
            Status.stopped: f"there was time for its guarded run only, of {seconds(float(self.guard_s[k] or 0))}",
            Status.not_run: "its time was up before it ran",
        }.get(status, self.notes[k])

    def stacked(self) -> Any:
        """(n, K + 1): the outputs as columns, and ones. Also inside of `jax.jit`.

        Raises:
            UsageError: the outputs are no vectors.
        """
        leaves = jax.tree.leaves(self.outputs)
        if len(leaves) != 1 or leaves[0].ndim != 2:
            shapes = [list(leaf.shape[1:]) for leaf in leaves]
            raise UsageError(f"outputs of shapes {shapes} cannot be stacked", "functions that return one vector")
        return jnp.concatenate([leaves[0], jnp.ones_like(leaves[0][:1])]).T

    def table(self) -> str:
        """Text: a line for each function, and what was not measured and why."""
        return terminal.to_text(self.document())

    def __str__(self) -> str:
        return repr(self) if isinstance(self.status, Tracer) else terminal.to_printed(self.document())

    def _repr_html_(self) -> str | None:
        return None if isinstance(self.status, Tracer) else html.fragment(self.document())

    def to_html(self, file: str | os.PathLike[str]) -> None:
        """Writes a page: one file that needs no network.

        Raises:
            UsageError: it is asked for while a compiled grid is traced, or there can be no such file.
        """
        if isinstance(self.status, Tracer):
            raise UsageError(
                "a page can't be made inside a traced function", "a call outside of it, after the times are known"
            )
        title = Heading(f"Compiled grid of {plural(len(self.names), 'function')}", 1)
        save_page(file, [Document((title, *self.document().blocks))])

    def document(self) -> Document:
        lines = map(self._line, range(len(self.names)))
        where = self.circumstances
        below = [Paragraph(self._footer()), *([Paragraph(str(where), "faint")] if where else [])]
        busy = [where.busy] if where and where.busy else []
        return Document((Paragraph(self._answer()), tabulate(COLUMNS, lines), *below, *list_remarks(busy)))

    def _answer(self) -> str:
        medians = {name: s.median_s for k, name in enumerate(self.names) if (s := self.summary(k))}
        if not medians:
            return "no function was measured: the table says why"
        least = min(medians, key=medians.__getitem__)
        many = f"{len(medians)} of {len(self.names)} measured, results not compared"
        return f"{least} has the least median, {seconds(medians[least])} ({many})"

    def __repr__(self) -> str:
        return f"<compiled grid of {plural(len(self.names), 'function')} × {self.stamps.shape[1]}>"

    def _line(self, k: int) -> tuple[str, ...]:
        summary, why = self.summary(k), self.why_not_measured(k)
        notes = [f"not measured, because {why}" if why else self.notes[k], self._late(k)]
        return (
            self.names[k],
            self.status_names[k],
            seconds(summary.median_s) if summary else "",
            seconds_range(summary.low_s, summary.high_s) if summary else "",
            f"{int(self.count[k])}/{self.stamps.shape[1]}",
            seconds(float(self.elapsed_s[k])),
            "; ".join(filter(None, notes)),
        )

    def _late(self, k: int) -> str:
        late_s = float(self.elapsed_s[k] - self.limit_s[k])
        if late_s <= LATE_S or self.status[k] == Status.not_run:
            return ""
        names = ", ".join(self.unstoppable[k])
        return f"ended {seconds(late_s)} after its limit" + (f", because nothing stops {names}" if names else "")

    def _footer(self) -> str:
        cost = self.stamp_cost_s.compressed()
        net = f", its readings of {seconds(float(np.median(cost)))} subtracted" if cost.size else ""
        unknown = f"; whether all of each function's work was timed is unknown, because {UNKNOWN}"
        call = f"one compiled call of {seconds(self.total_s)}; clock: {self.clock}{net}"
        return call + (unknown if self.unproved is None else "")

    def _why_not_believed(self, summary: Summary, cost_s: float) -> str | None:
        least_s = max(LEAST_SHARE * cost_s, 0.0)
        if summary.median_s >= least_s and (summary.low_s is None or summary.low_s > 0):
            return None
        return f"it takes less than {seconds(least_s, 2)}, and reading the clock takes {seconds(cost_s, 2)}"

    def _place(self, k: int | str) -> int:
        if isinstance(k, int | np.integer):
            return range(len(self.names))[k]
        if k not in self.names:
            raise UsageError(f"there is no function {k!r} in this grid", one_of(self.names, k))
        return self.names.index(k)

    def _differences(self, first: int) -> np.ndarray:
        """Seconds of a run [K, N] from one stamp of a repetition to the next; 0 if there was no run."""
        ns = np.where(self._is_timed, self._ns[..., first + 1] - self._ns[..., first], 0)
        return ns / np.asarray(self.runs)[:, None] / 1e9

    @cached_property
    def _costs_nearby(self) -> np.ndarray:
        """Seconds of an empty run [K, N]: the median of those of the repetitions around, since it drifts."""
        costs = np.where(self._is_timed, self._differences(1), np.nan)
        around = np.pad(costs, ((0, 0), (NEARBY, NEARBY)), constant_values=np.nan)
        windows = np.lib.stride_tricks.sliding_window_view(around, 2 * NEARBY + 1, axis=1)
        return np.where(self._is_timed, np.nanmedian(np.where(self._is_timed[..., None], windows, 0.0), axis=2), 0.0)

    @cached_property
    def _ns(self) -> np.ndarray:
        return nanoseconds(self.stamps)

    @cached_property
    def _span_ns(self) -> np.ndarray:
        return nanoseconds(self.span)

    @cached_property
    def _is_timed(self) -> np.ndarray:
        return np.arange(self.stamps.shape[1]) < np.asarray(self.count)[:, None]

    @cached_property
    def _summaries(self) -> list[Summary | None]:
        return [summarize(row.compressed().tolist()) if row.count() else None for row in self.seconds()]


# ---- a loop in Python ------------------------------------------------------------------------------------------------
#
# Two ways of benchmarking side by side: a loop in Python that times each call, and the loop inside a compiled grid.
#
# Both run the same functions on the same data, with as many readings. They alternate, round by round, so that both see
# the same machine. The comparison separates the first round (tracing and compiling) from the later ones. It also
# separates the time of a run by its own clock from the whole time of measuring it: the difference is the cost of
# benchmarking.
#
# The Python loop has no limits inside. So functions that the compiled grid has stopped, or could not run, are left out.


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
        times = [[way.run_s.get(key) for way in ways] for key in self.python.run_s]
        lines = [
            (*key, *("not measured" if each is None else seconds(each) for each in found))
            for key, found in zip(self.python.run_s, times, strict=True)
        ]
        totals = [
            (way.name, seconds(median(way.took_s)), f"{way.runs:,}", seconds(way.per_run_s), seconds(way.first_s))
            for way in ways
        ]
        # A spec is its own signature.
        inputs = [f"{label}: {each.inputs}" for label, each in self.circumstances.items() if each.inputs != label]
        where = [*dict.fromkeys(each.machine for each in self.circumstances.values()), *inputs]
        tables = [tabulate(columns, lines), tabulate(_TOTALS, totals)]
        low, high = min(self.ratios), max(self.ratios)
        answer = (
            f"A run costs {median(self.ratios):.3g} times as much in the Python loop as in the compiled one "
            f"({low:.3g} – {high:.3g} in {plural(len(self.ratios), 'round')})."
        )
        texts = [*(f"{function}, {data}: left out, because {why}" for (function, data), why in self.left_out.items())]
        texts.append(f"The comparison took {self.elapsed_s:.2f} seconds.")
        return Document((Paragraph(answer), *tables, *map(Paragraph, texts), *list_lines(where, "faint")))


_TOTALS = (TableColumn("", "words"), "a round took", "runs in it", "per run", "first round")


def compare_loops(h: CompiledGrid, data: Mapping[str, Any], rounds: int) -> LoopComparison:
    """Raises `NotMeasured` if no function can run in both."""
    begun = perf_counter()

    def run_compiled() -> dict[str, CompiledGridResult]:
        return jax.block_until_ready({label: h(x) for label, x in data.items()})

    def run_python() -> dict[tuple[str, str], float]:
        return {key: _call(f, args, h.repeats) for key, (f, args) in calls.items()}

    results, first_compiled_s = noise.timed(run_compiled)
    left_out = {
        (name, label): r.why_not_measured(k) or r.status_names[k]
        for label, r in results.items()
        for k, name in enumerate(r.names)
        if int(r.status[k]) not in (Status.ok, Status.constant)
    }
    calls = {
        (name, label): (jax.jit(fn), x if type(x) is tuple else (x,))
        for label, x in data.items()
        for name, fn in h.functions.items()
        if (name, label) not in left_out
    }
    if not calls:
        raise NotMeasured("no function ends within its limit: " + "; ".join(left_out.values()))
    _, first_python_s = noise.timed(run_python)
    rng, ways = random.Random(0), [partial(noise.timed, run) for run in (run_compiled, run_python)]
    compiled, python = zip(*(take_round(ways, rng) for _ in range(rounds)), strict=True)

    runs = [sum(int(np.sum(np.asarray(r.count) * np.asarray(r.runs))) for r in found.values()) for found, _ in compiled]
    return LoopComparison(
        _way(PYTHON, first_python_s, python, len(calls) * h.repeats, calls, lambda found, key: found[key]),
        _way(
            COMPILED,
            first_compiled_s,
            compiled,
            round(median(runs)),
            calls,
            lambda found, key: s.median_s if (s := found[key[1]].summary(key[0])) else None,
        ),
        left_out,
        {label: r.circumstances for label, r in results.items() if r.circumstances},
        perf_counter() - begun,
    )


def _call(f: Any, args: tuple[Any, ...], repeats: int) -> float:
    """Median seconds of a call and the wait for it, each timed."""
    times = []
    for _ in range(repeats):
        begun = perf_counter_ns()
        jax.block_until_ready(f(*args))
        times.append(perf_counter_ns() - begun)
    return median(times) / 1e9


def _way(
    name: str,
    first_s: float,
    rounds: Sequence[tuple[Any, float]],
    runs: int,
    keys: Iterable[tuple[str, str]],
    read: Callable[[Any, tuple[str, str]], float | None],
) -> Way:
    readings = {key: [read(found, key) for found, _ in rounds] for key in keys}
    known = {key: [value for value in values if value is not None] for key, values in readings.items()}
    medians = {key: median(values) if values else None for key, values in known.items()}
    return Way(name, first_s, tuple(took_s for _, took_s in rounds), runs, medians)
