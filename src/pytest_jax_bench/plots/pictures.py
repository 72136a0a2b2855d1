"""The pictures, from rows of CSV files to charts one below the other: history, tags, over a parameter, many tests.

History: all runs of one test, along the runs or the commits. The others: only the newest run of each name. Symbols and
a note distinguish rows of different machines, versions or timers; a line never connects them. Text above the first
chart explains the dots and bars, and the differences between the rows.

A row of ours has a median with its 95 % interval. A row of pytest-jax-bench has a mean with the standard deviation of
its samples. The two kinds never share a series. -1 bytes and a time of 0 are not readings.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from benchax.model import Opaque
from benchax.reporting.document import Axis, AxisTick, Chart, Line, Mark, Points, Shade, Symbol, describe_value
from benchax.units import BYTES, plural, size

Floats = np.ndarray[Any, np.dtype[np.float64]]
Rows = np.ndarray[Any, Any]
"""A structured array, as `load_bench_data` gives it; columns of ours may be missing."""

FAR = 20.0
"""Values that are further apart than this factor do not share a linear scale."""
DOUBTFUL = "doubtful result"
"""A row that has its numbers, and a message that casts doubt on them."""
UNKNOWN = "unknown"
"""The commit of a row without git."""
Picture = tuple[Chart, ...]
MOST_RUNS = 1000
"""The newest runs are shown of a longer history: a page is not wider than that."""
MOST_TICKS = 8
"""Values of a parameter that can themselves be the ticks."""
MOST_NAMES = 100
"""Names along an axis to the right; beyond that, of some."""
WIDTH = 75
"""Characters in a line above a picture."""
SYMBOLS: dict[str, Symbol] = {"●": "circle", "◆": "diamond", "◀": "left", "▶": "right"}
"""By the sign that a sentence has for it: of the first, second, … machine, version or timer."""


@dataclass(frozen=True)
class Places:
    """The arrangement of the rows: by runs, commits, numbers, or names."""

    axis: Axis
    at: Floats
    """Per row."""
    shades: tuple[Shade, ...] = ()
    is_connected: bool = False
    """Whether there is something between two rows for a line to pass through."""
    is_below: bool = False
    """Names are one below the other, so that you can read them; values then run to the right."""


def history(rows: Rows, title: str, x_axis: Literal["run", "commit"] = "run", most: int = MOST_RUNS) -> Picture:
    """All runs of one test, oldest left; one colour per tag if it has several."""
    rows = rows[np.argsort(rows["run_id"], kind="stable")]
    runs = np.unique(rows["run_id"])
    rows = rows[np.isin(rows["run_id"], runs[-most:])]
    count = plural(len(runs), "run")
    if len(runs) > most:
        count = f"The last {most} of {count}"
    places = along_commits(rows) if x_axis == "commit" else along_runs(rows)
    known = set(commits(rows)) - {UNKNOWN}
    extent = f"{count}, {plural(len(known), 'commit')}" if known else f"{count}, commit unknown"
    tags = texts(rows, "tag")
    groups = tags if len(set(tags)) > 1 else []
    return _picture(rows, title, places, panels_of(rows, groups), extent, groups)


def has_tags(rows: Rows) -> bool:
    """Whether the newest run has several."""
    return len(set(texts(_newest_run(rows), "tag"))) > 1


def by_tag(rows: Rows, title: str) -> Picture:
    """The tags of the newest run, one below the other."""
    rows = _newest_run(rows)
    return _newest(rows, f"{title}, newest run", distinct(texts(rows, "tag"), LONGEST))


def by_parameter(rows: Rows, values: dict[str, list[Any]], name: str, title: str) -> Picture:
    """The newest run for each value of the parameter `name`; one colour per tag and combination of the others.

    Args:
        values: of each parameter, its value in each row.
    """
    rows, values = _newest_of_each(rows, values)
    others = _others(rows, values, name)
    groups = others if len(set(others)) > 1 else []
    panels = panels_of(rows, groups, together=True)
    return _picture(
        rows, f"{title}, over {short(name)}", along_parameter(values[name], name), panels, _which(rows), groups
    )


def summary(tests: Sequence[tuple[str, Rows]]) -> Picture:
    """The newest run of each test and tag, one below the other.

    Args:
        tests: the id of each test, and its rows.
    """
    names: list[str] = []
    parts: list[Rows] = []
    for name, (_, rows) in zip(names_of_tests([nodeid for nodeid, _ in tests]), tests, strict=True):
        parts.append(_newest_run(rows))
        tags = texts(parts[-1], "tag")
        names += [f"{name} · {short(tag, 24)}" if len(tags) > 1 else name for tag in tags]
    return _newest(np.concatenate(parts), f"Summary of {plural(len(tests), 'test')}", distinct(names, LONGEST_TEST))


def _newest(rows: Rows, title: str, names: Sequence[str]) -> Picture:
    """A line for each row, even for two of one name."""
    places = Places(_names(names), np.arange(len(names), dtype=np.float64), is_below=True)
    return _picture(rows, title, places, panels_of(rows, together=True), _which(rows), names)


def _names(names: Sequence[str], title: str = "") -> Axis:
    return Axis(title, ticks=tuple(AxisTick(i, name) for i, name in enumerate(names)), are_names=True)


def _picture(
    rows: Rows, title: str, places: Places, panels: Sequence[Panel], extent: str, groups: Sequence[str] = ()
) -> Picture:
    used, failed = instruments(rows), failures(rows)
    # A row without a number belongs to no line.
    measured = {int(i) for panel in panels for one in panel.series for i in one.rows[np.isfinite(one.value)]}
    unique = list(dict.fromkeys(used[i] for i in sorted(measured)))
    lines = np.array([unique.index(one) if one in unique else 0 for one in used], dtype=np.intp)
    said = [f"{extent}.", *_describe_failures(failed, groups, measured if places.is_below else None)]
    said += [*notes(panels, unique, places.is_connected), *([] if panels else [_why_nothing(failed)])]
    above = "\n".join([short(title, 90), *(line for note in said for line in textwrap.wrap(note, WIDTH))])
    charts = [_chart(panel, places, lines) for panel in panels] or [Chart(places.axis, Axis(), ())]
    marks = (*charts[0].marks, *_mark_failures(failed, places))
    # The legend is above the chart, four labels in a line.
    labels = {mark.label for mark in marks if isinstance(mark, Points)}
    charts[0] = replace(charts[0], title=above + "\n" * math.ceil(len(labels) / 4), marks=marks)
    return tuple(charts)


def _chart(panel: Panel, places: Places, lines: np.ndarray[Any, Any]) -> Chart:
    values = panel.finite()
    is_log = bool(values.min() > 0) and spread(values) > FAR
    ticks = _size_ticks(values, is_log) if panel.quantity == "bytes" else ()
    # An axis to the right starts at 0, unless it's logarithmic: lengths are compared there.
    ends = None if is_log else _limits(panel, is_from_0=places.is_below)
    axis = Axis(panel.title, panel.quantity, is_log, ends, ticks)
    marks: list[Mark] = list(places.shades)
    labels = list(dict.fromkeys(series.label for series in panel.series))
    for series in panel.series:
        for line in np.unique(lines[series.rows]):
            # There are 8 colours: the symbols tell more labels apart.
            turn = int(line) + labels.index(series.label) // 8
            here = np.flatnonzero(lines[series.rows] == line)
            marks += _mark(series, here, places, list(SYMBOLS.values())[turn % len(SYMBOLS)])
    x, y = (axis, places.axis) if places.is_below else (places.axis, axis)
    return Chart(x, y, tuple(marks), has_series=True)


def _mark(series: PlottedSeries, here: Any, places: Places, symbol: Symbol) -> list[Mark]:
    """The rows `here` of a series, and a line through them, which ends at a gap."""
    here = here[np.argsort(places.at[series.rows[here]], kind="stable")]
    at, value = places.at[series.rows[here]].tolist(), series.value[here].tolist()
    ends = zip(series.low[here].tolist(), series.high[here].tolist(), strict=True)
    known = [i for i, number in enumerate(value) if math.isfinite(number)]
    intervals = [pair if all(map(math.isfinite, pair)) else None for pair in ends]
    label = plain(series.label)
    points = Points(
        tuple(at[i] for i in known),
        tuple(value[i] for i in known),
        tuple(intervals[i] for i in known),
        "x" if places.is_below else "y",
        label,
        symbol=symbol,
        is_hollow=series.is_hollow,
    )
    through = [Line(tuple(at), tuple(value), label)] if places.is_connected and len(known) > 1 else []
    return [*through, *([points] if known else [])]


def _mark_failures(failed: Sequence[str], places: Places) -> list[Mark]:
    """Marks at the edge, for failures, which have no value."""
    here = [i for i, kind in enumerate(failed) if kind]
    label = plain("failed: " + ", ".join(dict.fromkeys(failed[i] for i in here)))
    at, along = tuple(float(places.at[i]) for i in here), "x" if places.is_below else "y"
    return [Points(at, (None,) * len(at), along=along, label=label, style="bad")] if here else []


def _limits(panel: Panel, is_from_0: bool) -> tuple[float, float]:
    """From 0, unless a history's values lie close together; even then so wide that 1 % doesn't look like a cliff."""
    ends = [panel.finite(), *(end[np.isfinite(end)] for s in panel.series for end in (s.low, s.high))]
    low, high = float(np.concatenate(ends).min()), float(np.concatenate(ends).max())
    if low > 0 and high < 1.4 * low and not is_from_0:
        middle = (low + high) / 2
        return 0.75 * middle, 1.25 * middle
    return 0.0, high * 1.08 or 1.0


def _size_ticks(values: Floats, is_log: bool) -> tuple[AxisTick, ...]:
    """Round numbers of MiB are no round numbers of bytes."""
    top = float(values.max())
    if is_log:
        first, last = (math.log(end, 4) for end in (values.min(), top))
        step = 1 + int((last - first) // 6)
        at = [4.0**power for power in range(math.floor(first), math.ceil(last) + 1, step)]
    else:
        unit = BYTES[size(top).rsplit(" ", 1)[1]]
        decade = 10.0 ** math.floor(math.log10(max(top / unit, 1)))
        step = next(share for share in (0.2, 0.5, 1, 2) if top / unit <= 6 * share * decade) * decade
        at = [i * step * unit for i in range(7) if i * step * unit <= 1.08 * top]
    return tuple(AxisTick(place, describe_value(place, "bytes")) for place in at)


# ---- the text above -------------------------------------------------------------------------------------------


def _which(rows: Rows) -> str:
    """Names the commits of the newest runs: not all need be from the same commit."""
    names = [short(c, LONGEST_COMMIT) for c in dict.fromkeys(commits(rows))]
    if len(names) == 1:
        return f"The newest run of each, commit {names[0]}"
    return f"The newest run of each, which are not all of one commit: {list_texts(names)}"


def _describe_failures(failed: Sequence[str], groups: Sequence[str], measured: set[int] | None) -> list[str]:
    """Lists the failures with their groups, because a mark has no room for its group, and groups without a number."""
    named = list(enumerate(zip((short(group, 32) for group in groups), failed, strict=False)))
    texts = [f"{group} ({kind})" for _, (group, kind) in named if kind]
    empty = [group for i, (group, kind) in named if not kind and measured is not None and i not in measured]
    found = {"Failed": list(dict.fromkeys(texts)), "Not measured": empty}
    return [f"{what}: {list_texts(some)}." for what, some in found.items() if some]


def _why_nothing(failed: Sequence[str]) -> str:
    kinds = [kind for kind in failed if kind]
    if not kinds:
        return "Not measured, because no row of this test holds a number."
    counted = ", ".join(f"{kind} ({kinds.count(kind)} ×)" for kind in dict.fromkeys(kinds))
    return f"Not measured, because {len(kinds)} of {len(failed)} rows failed: {counted}."


def notes(panels: Sequence[Panel], instruments: Sequence[tuple[str, str, str]], is_connected: bool) -> tuple[str, ...]:
    """Returns the sentences about dots and bars, and about rows that cannot be compared.

    Args:
        instruments: timer, environment and version of JAX of each line of the picture.
    """
    return tuple(text for text in (_what(panels), _whose(instruments, is_connected)) if text)


def _what(panels: Sequence[Panel]) -> str:
    times = [s for panel in panels if panel.title.startswith("run time") for s in panel.series]
    medians = [s for s in times if not s.is_mean]
    sentences: list[str] = []
    if medians:
        bare = any((np.isfinite(s.value) & ~np.isfinite(s.high - s.low)).any() for s in medians)
        sentences.append("Run times are medians with 95 % intervals" + "; without a bar, of too few samples" * bare)
    if len(medians) < len(times):
        sentences.append("A mean has the standard deviation of its samples, which is all that older rows hold")
    if any(panel.title == "compile time" for panel in panels):
        sentences.append("A compile time is one reading")
    if {s.label for s in times if s.is_hollow} & {s.label for s in times if not s.is_hollow}:
        sentences.append("Hollow: eager")
    return ". ".join(sentences) + "." * bool(sentences)


def _whose(instruments: Sequence[tuple[str, str, str]], is_connected: bool) -> str:
    """Names the lines by what differs between them, if there are several."""
    if len(instruments) < 2:
        return ""
    differ = [len(set(column)) > 1 for column in zip(*instruments, strict=True)]
    names = [f"{mark} {_name_instrument(one, differ)}" for mark, one in zip(SYMBOLS, instruments, strict=False)]
    names += [f"{len(instruments) - len(names)} more"] * (len(instruments) > len(names))
    only = ", and lines connect only those that can" if is_connected else ""
    return f"Not all rows can be compared{only}: {'; '.join(names)}."


def _name_instrument(instrument: tuple[str, str, str], differ: Sequence[bool]) -> str:
    named = zip(("timer", "environment", "jax"), instrument, differ, strict=True)
    known = [f"{word} {short(value, 10)}" for word, value, is_told in named if is_told and value]
    return ", ".join(known) or ("machine and timer unknown" if not instrument[1] else "without a jitted run time")


# ---- which rows, and where they stand -------------------------------------------------------------------------


def _newest_run(rows: Rows) -> Rows:
    return rows[rows["run_id"] == rows["run_id"].max()]


def _newest_of_each(rows: Rows, values: dict[str, list[Any]]) -> tuple[Rows, dict[str, list[Any]]]:
    """Returns the newest run of each combination of parameters. Each combination has separate runs, in a separate
    file."""
    keys = [repr(combination) for combination in zip(*values.values(), strict=True)]
    last: dict[str, int] = {}
    for key, run in zip(keys, rows["run_id"], strict=True):
        last[key] = max(int(run), last.get(key, -1))
    kept = [i for i, key in enumerate(keys) if int(rows["run_id"][i]) == last[key]]
    return rows[kept], {name: [column[i] for i in kept] for name, column in values.items()}


def _others(rows: Rows, values: dict[str, list[Any]], name: str) -> list[str]:
    """Returns the differences between rows besides the parameter `name`: the tag and the other parameters, if they
    vary."""
    columns = {k: [as_text(v) for v in column] for k, column in values.items() if k != name}
    columns = {k: [f"{k}={short(v, 16)}" for v in column] for k, column in columns.items() if len(set(column)) > 1}
    tags = texts(rows, "tag")
    varying = ([tags] if len(set(tags)) > 1 else []) + list(columns.values())
    return [", ".join(parts) for parts in zip(*varying, strict=True)] if varying else [""] * len(rows)


def along_runs(rows: Rows) -> Places:
    """Runs in a line, in the order of their numbers; each commit is named at the first of its runs in a row."""
    at = rows["run_id"].astype(np.float64)
    names = commits(rows)
    first = [i for i in range(len(rows)) if i == 0 or names[i] != names[i - 1]]
    borders = [at[0] - 0.5 if i == 0 else (at[i - 1] + at[i]) / 2 for i in first] + [at[-1] + 0.5]
    shades = tuple(Shade("x", borders[k], borders[k + 1]) for k in range(1, len(first), 2))
    named = first[:: 1 + len(first) // MOST_NAMES]
    ticks = tuple(AxisTick(at[i], f"{at[i]:.0f} · {short(names[i], LONGEST_COMMIT)}") for i in named)
    return Places(Axis("run", ends=(borders[0], borders[-1]), ticks=ticks, are_names=True), at, shades, True)


def along_commits(rows: Rows) -> Places:
    """Commits in the order of their first run; the runs of each side by side, oldest left."""
    names = commits(rows)
    unique = list(dict.fromkeys(names))
    at = np.empty(len(rows))
    for number, name in enumerate(unique):
        which = [i for i, n in enumerate(names) if n == name]
        runs = sorted({int(rows["run_id"][i]) for i in which})
        step = 0.6 / max(1, len(runs) - 1)
        for i in which:
            place = runs.index(int(rows["run_id"][i]))
            at[i] = number if len(runs) == 1 else number - 0.3 + step * place
    axis = _names(distinct(unique, LONGEST_COMMIT), "commit")
    axis = replace(axis, ticks=axis.ticks[:: 1 + len(unique) // MOST_NAMES], ends=(-0.5, len(unique) - 0.5))
    return Places(axis, at, tuple(Shade("x", n - 0.5, n + 0.5) for n in range(1, len(unique), 2)))


def along_parameter(values: Sequence[Any], name: str) -> Places:
    """Numbers along a line, logarithmic where they span decades; anything else as names."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values):
        return _along_numbers(values, name)
    unique = sorted({repr(v): v for v in values}.values(), key=natural)
    shown = [as_text(v) for v in unique]
    # None and "None", 1 and "1" are different values.
    shown = [repr(v) if shown.count(s) > 1 else s for v, s in zip(unique, shown, strict=True)]
    number = {repr(v): i for i, v in enumerate(unique)}
    at = np.array([number[repr(v)] for v in values], dtype=np.float64)
    return Places(_names(distinct(shown), short(name)), at, is_below=True)


def _along_numbers(values: Sequence[float], name: str) -> Places:
    at = np.array(values, dtype=np.float64)
    is_log = bool(at.min() > 0 and at.max() > FAR * at.min())
    named = {float(v): str(v) for v in values}
    places = np.log(sorted(named)) if is_log else np.array(sorted(named))
    ticks = tuple(AxisTick(place, named[place]) for place in sorted(named)) if _fit(places, named) else ()
    return Places(Axis(short(name), is_log=is_log, ticks=ticks), at, is_connected=True)


def _fit(places: Floats, named: dict[float, str]) -> bool:
    """Whether the values themselves can be the ticks."""
    longest = max(map(len, named.values()))
    if len(places) == 1:
        return longest <= 20
    gap = np.diff(places).min() / (places[-1] - places[0])
    return len(places) <= MOST_TICKS and bool(gap > 0.012 * (longest + 1))


# ---- series ---------------------------------------------------------------------------------------------------


def seconds(rows: Rows, column: str) -> Floats:
    """Milliseconds of a column as seconds. 0 is what pytest-jax-bench writes for anything below 5 µs: not a reading."""
    values = _column(rows, column) * 1e-3
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def sizes(rows: Rows, column: str) -> Floats:
    values = _column(rows, column)
    return np.where(values >= 0, values, np.nan)


def texts(rows: Rows, column: str) -> list[str]:
    return [str(v) for v in rows[column]] if column in (rows.dtype.names or ()) else [""] * len(rows)


def commits(rows: Rows) -> list[str]:
    """Without the + of uncommitted changes, which belong to the commit that they began from."""
    return [c.rstrip("+") or UNKNOWN for c in texts(rows, "commit")]


def failures(rows: Rows) -> tuple[str, ...]:
    """The failure of each row: timeout, crashed, …, or a check of its result; empty without one."""
    both = zip(texts(rows, "status"), texts(rows, "message"), strict=True)
    return tuple(DOUBTFUL * bool(m) if s in ("", "ok") else s.replace("_", " ") for s, m in both)


def instruments(rows: Rows) -> list[tuple[str, str, str]]:
    """Returns what must be equal for rows on one line: timer, environment, version of JAX.

    A row without a jitted time has no jitted timer. It is on the line of its machine's other rows, because the same
    timer reads their eager times.
    """
    machines = list(zip(texts(rows, "environment"), texts(rows, "jax"), strict=True))
    known = dict[tuple[str, str], str]()
    for timer, machine in zip(texts(rows, "timer"), machines, strict=True):
        if timer and machine[0]:
            known.setdefault(machine, timer)
    timers = zip(texts(rows, "timer"), machines, strict=True)
    return [(timer or known.get(machine, ""), *machine) for timer, machine in timers]


@dataclass(frozen=True)
class PlottedSeries:
    """Readings with one label, in seconds or bytes; NaN for a missing one."""

    label: str
    rows: np.ndarray[Any, np.dtype[np.intp]]
    """The indices of these rows in the picture."""
    value: Floats
    low: Floats
    high: Floats
    is_hollow: bool = False
    """Eager: the colour of its jitted partner, unfilled."""
    is_mean: bool = False


@dataclass(frozen=True)
class Panel:
    """Series that share an axis."""

    title: str
    quantity: Literal["seconds", "bytes"]
    series: tuple[PlottedSeries, ...]

    def finite(self) -> Floats:
        values = [s.value[np.isfinite(s.value)] for s in self.series]
        return np.concatenate(values) if values else np.empty(0)


def panels_of(rows: Rows, groups: Sequence[str] = (), *, together: bool = False) -> tuple[Panel, ...]:
    """The panels that have numbers. Jitted and eager runs share a panel if one linear scale suits both. Next to
    something a hundred times slower, no change of the faster one would be visible.

    Args:
        groups: a name for each row (a tag, say): times and peaks of each, to keep it readable. Without them: also the
            parts of the peak.
        together: jitted and eager times in one panel, however far apart they are.
    """
    jit: list[PlottedSeries] = []
    eager: list[PlottedSeries] = []
    compiling: list[PlottedSeries] = []
    memory: list[PlottedSeries] = []
    names = list(dict.fromkeys(groups))
    for name, label in zip(names or [""], distinct(names, 32) or [""], strict=True):
        which = np.flatnonzero([group == name for group in groups]) if groups else np.arange(len(rows))
        some = rows[which]
        jit += _times(some, which, "jit", label or "jitted")
        eager += _times(some, which, "eager", label or "eager", is_hollow=True)
        compiling.append(_series(label or "compile", which, seconds(some, "compile_ms")))
        memory.append(_series(label or "jitted, peak", which, sizes(some, "jit_peak_bytes")))
        memory += [] if groups else _parts(some, which)
        memory.append(_series(label or "eager, peak", which, sizes(some, "eager_peak_bytes"), is_hollow=True))
    both = _panel("run time", "seconds", [*jit, *eager])
    apart = [_panel("run time, jitted", "seconds", jit), _panel("run time, eager", "seconds", eager)]
    times = [both] if together or spread(both.finite()) <= FAR else apart
    rest = [
        _panel("compile time", "seconds", compiling),
        _panel("peak memory" if groups else "memory", "bytes", memory),
    ]
    return tuple(panel for panel in (*times, *rest) if panel.series)


def _panel(title: str, quantity: Literal["seconds", "bytes"], series: Sequence[PlottedSeries]) -> Panel:
    return Panel(title, quantity, tuple(s for s in series if np.isfinite(s.value).any()))


def _parts(rows: Rows, which: Any) -> list[PlottedSeries]:
    """The parts of the peak. Constants are there only if they matter, as most programs have a few bytes of them."""
    parts = [_series("jitted, temporary", which, sizes(rows, "jit_temporary_bytes"))]
    peak, constants = sizes(rows, "jit_peak_bytes"), sizes(rows, "jit_constants_bytes")
    if (np.nan_to_num(constants) > 0.01 * np.nan_to_num(peak)).any():
        parts.append(_series("jitted, constants", which, constants))
    return parts


def spread(values: Floats) -> float:
    """Greatest divided by smallest of the values above 0; 1 without any."""
    positive = values[values > 0]
    return float(positive.max() / positive.min()) if len(positive) else 1.0


def _times(rows: Rows, which: Any, what: str, label: str, is_hollow: bool = False) -> list[PlottedSeries]:
    median, mean, deviation = (seconds(rows, f"{what}_{column}_ms") for column in ("median", "mean", "std"))
    low, high = seconds(rows, f"{what}_low_ms"), seconds(rows, f"{what}_high_ms")
    old = np.where(np.isnan(median), mean, np.nan)
    return [
        PlottedSeries(label, which, median, low, high, is_hollow),
        PlottedSeries(
            f"{label}, mean", which, old, np.maximum(old - deviation, 0), old + deviation, is_hollow, is_mean=True
        ),
    ]


def _series(label: str, which: Any, value: Floats, is_hollow: bool = False) -> PlottedSeries:
    none = np.full(len(value), np.nan)
    return PlottedSeries(label, which, value, none, none, is_hollow)


def _column(rows: Rows, column: str) -> Floats:
    if column not in (rows.dtype.names or ()):
        return np.full(len(rows), np.nan)
    return np.asarray(rows[column], dtype=np.float64)


# ---- text: any name of a test, a tag, a parameter or a commit as one short line ----------------------------------

LONGEST = 44
LONGEST_TEST = 60
LONGEST_COMMIT = 18


def short(text: Any, longest: int = LONGEST) -> str:
    """Shortens a text to one line of at most `longest` characters, without the middle; unprintable characters become
    �."""
    text = str(text)
    if len(text) > 20 * longest:
        text = f"{text[: 10 * longest]}…{text[-10 * longest :]}"
    line = "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))
    if len(line) > longest:
        tail = longest // 3
        line = f"{line[: longest - tail - 1]}…{line[-tail:]}"
    return line or "(empty)"


def plain(text: str) -> str:
    """`text` for matplotlib, which reads dollars as formulas, and hides in a legend what begins with an underscore."""
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def distinct(texts: Sequence[Any], longest: int = LONGEST) -> list[str]:
    """A short line for each of `texts`, no two alike: those that differ only where they were cut are numbered."""
    lines: list[str] = []
    taken: set[str] = set()
    for text in texts:
        line, number = short(text, longest), 2
        while line in taken:
            line, number = f"{short(text, longest - 5)} ({number})", number + 1
        taken.add(line)
        lines.append(line)
    return lines


def as_text(value: Any) -> str:
    """A parameter; one that is no plain value, such as a function, by the text that it is stored as."""
    return value.text if isinstance(value, Opaque) else str(value)


def natural(value: Any) -> tuple[Any, ...]:
    """A key that sorts n2 before n10, and numbers before words."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, float(value), ())
    parts = re.split(r"([0-9]+)", as_text(value)[:1000])
    return (1, 0.0, tuple((0, int(p), "") if i % 2 else (1, 0, p.casefold()) for i, p in enumerate(parts)))


def names_of_tests(nodeids: Sequence[str]) -> list[str]:
    """Names of tests side by side: without the folders, and without the file if that is the same for all."""
    parts = [nodeid.partition("::") for nodeid in nodeids]
    one_file = len({file for file, _, _ in parts}) == 1
    return [name if one_file and name else f"{file.rsplit('/', 1)[-1]}{mark}{name}" for file, mark, name in parts]


def list_texts(texts: Sequence[str], most: int = 4) -> str:
    """a, b and c; beyond `most`: a, b, c, d and 7 more."""
    if len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most} more"
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else list(texts))
