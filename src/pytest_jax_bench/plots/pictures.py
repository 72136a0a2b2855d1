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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from benchax.grouping import group_by
from benchax.model import Opaque
from benchax.printable import list_some
from benchax.reporting.document import (
    Axis,
    AxisTick,
    Chart,
    Line,
    Mark,
    Points,
    Shade,
    Symbol,
    describe_value,
    name_places,
)
from benchax.reporting.tables import cut_middle, one_line
from benchax.units import BYTES, plural, size

Floats = np.ndarray[Any, np.dtype[np.float64]]
Rows = np.ndarray[Any, Any]
"""A structured array, as `load_bench_data` gives it."""
Instrument = tuple[str, str, str]
"""Timer, environment, and version of JAX."""
Picture = tuple[Chart, ...]

FAR = 20.0
"""Values that are further apart than this factor do not share a linear scale."""
UNKNOWN = "unknown"
"""The commit of a row without git."""
MOST_RUNS = 1000
"""The newest runs are shown of a longer history: a page is not wider than that."""
MOST_TICKS = 8
"""Values of a parameter that can themselves be the ticks."""
MOST_NAMES = 100
"""Names along an axis to the right; beyond that, of some."""
MOST_LISTED = 4
"""Names in a sentence; of more, it tells how many there are."""
WIDTH = 75
"""Characters in a line above a picture."""
SYMBOLS: dict[str, Symbol] = {"●": "circle", "◆": "diamond", "◀": "left", "▶": "right"}
"""By the sign that a sentence has for it: of the first, second, … machine, version or timer."""
TIMES = "run time"
PARTS = ("jit_constants_bytes", "jit_temporary_bytes")
SERIES = {
    "jit_median_ms": (TIMES, "jitted"),
    "jit_mean_ms": (TIMES, "jitted, mean"),
    "eager_median_ms": (TIMES, "eager"),
    "eager_mean_ms": (TIMES, "eager, mean"),
    "compile_ms": ("compile time", "compile"),
    "jit_peak_bytes": ("memory", "jitted, peak"),
    "jit_temporary_bytes": ("memory", "jitted, temporary"),
    "jit_constants_bytes": ("memory", "jitted, constants"),
    "eager_peak_bytes": ("memory", "eager, peak"),
}
"""By column: the chart that it is in, and its label."""


class Series(NamedTuple):
    """Readings with one label, in seconds or bytes; NaN for a missing one."""

    chart: str
    label: str
    column: str
    rows: np.ndarray[Any, np.dtype[np.intp]]
    """The indices of these rows in the picture."""
    value: Floats
    low: Floats
    high: Floats

    @property
    def is_hollow(self) -> bool:
        """Eager: the colour of its jitted partner, unfilled."""
        return self.column.startswith("eager")


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
    runs = np.unique(rows["run_id"])
    rows = rows[np.argsort(rows["run_id"], kind="stable")]
    rows = rows[np.isin(rows["run_id"], runs[-most:])]
    known = set(commits(rows)) - {UNKNOWN}
    count = f"The last {most} of " * (len(runs) > most) + plural(len(runs), "run")
    extent = f"{count}, {plural(len(known), 'commit') if known else 'commit unknown'}"
    tags = texts(rows, "tag")
    groups = tags if _varies(tags) else []
    places = along_commits(rows) if x_axis == "commit" else along_runs(rows)
    return _picture(rows, title, places, _list_series(rows, groups), extent, groups)


def has_tags(rows: Rows) -> bool:
    """Whether the newest run has several."""
    return _varies(texts(_newest_run(rows), "tag"))


def by_tag(rows: Rows, title: str) -> Picture:
    """The tags of the newest run, one below the other."""
    rows = _newest_run(rows)
    return _newest(rows, f"{title}, newest run", distinct(texts(rows, "tag")))


def by_parameter(rows: Rows, values: Mapping[str, Sequence[Any]], name: str, title: str) -> Picture:
    """The newest run for each value of the parameter `name`; one colour per tag and combination of the others.

    Args:
        values: of each parameter, its value in each row.
    """
    # Each combination of parameters has separate runs, in a separate file.
    same = group_by(range(len(rows)), lambda i: repr([column[i] for column in values.values()]))
    newest = {key: rows["run_id"][which].max() for key, which in same.items()}
    kept = sorted(i for key, which in same.items() for i in which if rows["run_id"][i] == newest[key])
    rows, values = rows[kept], {each: [column[i] for i in kept] for each, column in values.items()}
    # What differs besides this parameter: the tag, and other parameters.
    named = [[f"{k}={as_text(v)}" for v in column] for k, column in values.items() if k != name]
    groups = [", ".join(parts) for parts in zip(*filter(_varies, [texts(rows, "tag"), *named]), strict=True)]
    places, series = along_parameter(values[name], name), _list_series(rows, groups, is_together=True)
    return _picture(rows, f"{title}, over {short(name)}", places, series, _name_commits(rows), groups)


def summary(tests: Sequence[tuple[str, Rows]]) -> Picture:
    """The newest run of each test and tag, one below the other.

    Args:
        tests: the id of each test, and its rows.
    """
    newest = [_newest_run(rows) for _, rows in tests]
    names: list[str] = []
    for name, rows in zip(names_of_tests([nodeid for nodeid, _ in tests]), newest, strict=True):
        tags = texts(rows, "tag")
        names += [f"{name} · {short(tag, 24)}" if len(tags) > 1 else name for tag in tags]
    return _newest(np.concatenate(newest), f"Summary of {plural(len(tests), 'test')}", distinct(names, LONGEST_TEST))


def _varies(values: Sequence[str]) -> bool:
    return len(set(values)) > 1


def _newest_run(rows: Rows) -> Rows:
    return rows[rows["run_id"] == rows["run_id"].max()]


def _newest(rows: Rows, title: str, names: Sequence[str]) -> Picture:
    """A line for each row, even for two of one name."""
    places = Places(name_places(names), np.arange(len(names), dtype=np.float64), is_below=True)
    return _picture(rows, title, places, _list_series(rows, is_together=True), _name_commits(rows), names)


def _name_commits(rows: Rows) -> str:
    """Names the commits of the newest runs: not all need be from the same commit."""
    names = [short(c, LONGEST_COMMIT) for c in dict.fromkeys(commits(rows))]
    if len(names) == 1:
        return f"The newest run of each, commit {names[0]}"
    return f"The newest run of each, which are not all of one commit: {', '.join(list_some(names, MOST_LISTED))}"


def _picture(
    rows: Rows, title: str, places: Places, series: Sequence[Series], extent: str, names: Sequence[str] = ()
) -> Picture:
    used, failed = instruments(rows), failures(rows)
    # A row without a number belongs to no line.
    measured = {int(i) for one in series for i in one.rows[np.isfinite(one.value)]}
    unique = list(dict.fromkeys(used[i] for i in sorted(measured)))
    lines = np.array([unique.index(one) if one in unique else 0 for one in used], dtype=np.intp)
    said = [f"{extent}.", *_describe_failures(failed, names, measured if places.is_below else range(len(rows)))]
    said += [_describe_series(series) if series else _why_nothing(failed)]
    said += _describe_instruments(unique, places.is_connected)
    above = [short(title, 90), *(line for note in said for line in textwrap.wrap(note, WIDTH))]
    charts = [_chart(chart, some, places, lines) for chart, some in group_by(series, lambda s: s.chart).items()]
    first, *rest = charts or [Chart(places.axis, Axis(), ())]
    marks = (*first.marks, *_mark_failures(failed, places))
    # The legend is above the chart, four labels in a line.
    labels = {mark.label for mark in marks if isinstance(mark, Points)}
    return replace(first, title="\n".join(above) + "\n" * math.ceil(len(labels) / 4), marks=marks), *rest


# ---- charts -----------------------------------------------------------------------------------------------------


def _chart(title: str, series: Sequence[Series], places: Places, lines: np.ndarray[Any, Any]) -> Chart:
    """Series that share an axis."""
    values = np.concatenate([one.value[np.isfinite(one.value)] for one in series])
    is_log, is_bytes = bool(values.min() > 0) and spread(values) > FAR, series[0].column.endswith("bytes")
    ticks = _size_ticks(values, is_log) if is_bytes else ()
    # An axis to the right starts at 0, unless it's logarithmic: lengths are compared there.
    ends = None if is_log else _limits(series, is_from_0=places.is_below)
    axis = Axis(title, "bytes" if is_bytes else "seconds", is_log, ends, ticks)
    marks: list[Mark] = list(places.shades)
    labels = list(dict.fromkeys(one.label for one in series))
    for one in series:
        for line in np.unique(lines[one.rows]):
            # There are 8 colours: the symbols tell more labels apart.
            symbol = list(SYMBOLS.values())[(int(line) + labels.index(one.label) // 8) % len(SYMBOLS)]
            marks += _mark(one, lines[one.rows] == line, places, symbol)
    x, y = (axis, places.axis) if places.is_below else (places.axis, axis)
    return Chart(x, y, tuple(marks), has_series=True)


def _mark(series: Series, here: Any, places: Places, symbol: Symbol) -> Iterator[Mark]:
    """The rows `here` of a series, and a line through them, which ends at a gap."""
    columns = np.stack([places.at[series.rows], series.value, series.low, series.high])[:, here]
    columns = columns[:, np.argsort(columns[0], kind="stable")]
    known = columns[:, np.isfinite(columns[1])]
    if places.is_connected and known.shape[1] > 1:
        at, value = columns[:2].tolist()
        yield Line(tuple(at), tuple(value), series.label)
    if known.size:
        at, value, *ends = known.tolist()
        lows, highs = (tuple(end if math.isfinite(end) else None for end in each) for each in ends)
        look = {"along": "x" if places.is_below else "y", "label": series.label, "is_hollow": series.is_hollow}
        yield Points(tuple(at), tuple(value), lows, highs, symbol=symbol, **look)


def _mark_failures(failed: Sequence[str], places: Places) -> list[Mark]:
    """Marks at the edge, for failures, which have no value."""
    at = tuple(float(place) for place, kind in zip(places.at, failed, strict=True) if kind)
    label = "failed: " + ", ".join(dict.fromkeys(filter(None, failed)))
    along = "x" if places.is_below else "y"
    return [Points(at, (None,) * len(at), along=along, label=label, style="bad")] if at else []


def _limits(series: Sequence[Series], is_from_0: bool) -> tuple[float, float]:
    """From 0, unless a history's values lie close together; even then so wide that 1 % doesn't look like a cliff."""
    ends = np.concatenate([end for one in series for end in (one.value, one.low, one.high)])
    low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
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
        step = next(share for share in (0.2, 0.5, 1, 2) if top / unit <= 6 * share * decade) * decade * unit
        at = [i * step for i in range(7) if i * step <= 1.08 * top]
    return tuple(AxisTick(place, describe_value(place, "bytes")) for place in at)


# ---- the text above -------------------------------------------------------------------------------------------


def _describe_failures(failed: Sequence[str], names: Sequence[str], measured: Collection[int]) -> list[str]:
    """Lists the failures with their groups, because a mark has no room for its group, and groups without a number."""
    named = list(enumerate(zip((short(name, 32) for name in names), failed, strict=False)))
    found = {
        "Failed": list(dict.fromkeys(f"{name} ({kind})" for _, (name, kind) in named if kind)),
        "Not measured": [name for i, (name, kind) in named if not kind and i not in measured],
    }
    return [f"{what}: {', '.join(list_some(some, MOST_LISTED))}." for what, some in found.items() if some]


def _why_nothing(failed: Sequence[str]) -> str:
    kinds = list(filter(None, failed))
    if not kinds:
        return "Not measured, because no row of this test holds a number."
    counted = ", ".join(f"{kind} ({kinds.count(kind)} ×)" for kind in dict.fromkeys(kinds))
    return f"Not measured, because {len(kinds)} of {plural(len(failed), 'row')} failed: {counted}."


def _describe_series(series: Sequence[Series]) -> str:
    """Says what dots and bars are."""
    medians = [one for one in series if one.column.endswith("median_ms")]
    hollow = {one.label for one in series if one.is_hollow}
    said: list[str] = []
    if medians:
        is_bare = any((np.isfinite(one.value) & ~np.isfinite(one.high - one.low)).any() for one in medians)
        said.append("Run times are medians with 95 % intervals" + "; without a bar, of too few samples" * is_bare)
    if any(one.column.endswith("mean_ms") for one in series):
        said.append("A mean has the standard deviation of its samples, which is all that older rows hold")
    if any(one.column == "compile_ms" for one in series):
        said.append("A compile time is one reading")
    if any(one.label in hollow for one in series if not one.is_hollow):
        said.append("Hollow: eager")
    return "".join(f"{sentence}. " for sentence in said)


def _describe_instruments(instruments: Sequence[Instrument], is_connected: bool) -> list[str]:
    """Names the lines by what differs between them, if there are several."""
    if len(instruments) < 2:
        return []
    differ = [len(set(column)) > 1 for column in zip(*instruments, strict=True)]
    names = [f"{mark} {_name_instrument(one, differ)}" for mark, one in zip(SYMBOLS, instruments, strict=False)]
    only = ", and lines connect only those that can" if is_connected else ""
    more = f"; {len(instruments) - len(names)} more" if len(instruments) > len(names) else ""
    return [f"Not all rows can be compared{only}: {'; '.join(names)}{more}."]


def _name_instrument(instrument: Instrument, differ: Sequence[bool]) -> str:
    named = zip(("timer", "environment", "jax"), instrument, differ, strict=True)
    known = [f"{word} {short(value, 10)}" for word, value, is_told in named if is_told and value]
    return ", ".join(known) or ("machine and timer unknown" if not instrument[1] else "without a jitted run time")


# ---- places of rows ---------------------------------------------------------------------------------------------


def along_runs(rows: Rows) -> Places:
    """Runs in a line, in the order of their numbers; each commit is named at the first of its runs in a row."""
    at, names = rows["run_id"].astype(np.float64), commits(rows)
    first = [i for i in range(len(rows)) if i == 0 or names[i] != names[i - 1]]
    borders = [at[0] - 0.5, *((at[i - 1] + at[i]) / 2 for i in first[1:]), at[-1] + 0.5]
    shades = tuple(Shade("x", borders[k], borders[k + 1]) for k in range(1, len(first), 2))
    named = first[:: 1 + len(first) // MOST_NAMES]
    ticks = tuple(AxisTick(at[i], f"{at[i]:.0f} · {short(names[i], LONGEST_COMMIT)}") for i in named)
    return Places(Axis("run", ends=(borders[0], borders[-1]), ticks=ticks, are_names=True), at, shades, True)


def along_commits(rows: Rows) -> Places:
    """Commits in the order of their first run; the runs of each side by side, oldest left."""
    of_commit = group_by(range(len(rows)), dict(enumerate(commits(rows))).__getitem__)
    at = np.empty(len(rows))
    for number, here in enumerate(of_commit.values()):
        runs, places = np.unique(rows["run_id"][here], return_inverse=True)
        at[here] = number + (0.6 * places / (len(runs) - 1) - 0.3 if len(runs) > 1 else 0.0)
    count, axis = len(of_commit), name_places(distinct(list(of_commit), LONGEST_COMMIT), "commit")
    axis = replace(axis, ticks=axis.ticks[:: 1 + count // MOST_NAMES], ends=(-0.5, count - 0.5))
    return Places(axis, at, tuple(Shade("x", n - 0.5, n + 0.5) for n in range(1, count, 2)))


def along_parameter(values: Sequence[Any], name: str) -> Places:
    """Numbers along a line, logarithmic where they span decades; anything else as names."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values):
        return _along_numbers(np.array(values, np.float64), {float(v): str(v) for v in sorted(values)}, short(name))
    unique = sorted({repr(v): v for v in values}.values(), key=natural)
    shown = [as_text(v) for v in unique]
    # None and "None", 1 and "1" are different values.
    shown = [repr(v) if shown.count(s) > 1 else s for v, s in zip(unique, shown, strict=True)]
    number = {repr(v): i for i, v in enumerate(unique)}
    at = np.array([number[repr(v)] for v in values], np.float64)
    return Places(name_places(distinct(shown), short(name)), at, is_below=True)


def _along_numbers(at: Floats, named: Mapping[float, str], title: str) -> Places:
    is_log = bool(at.min() > 0 and at.max() > FAR * at.min())
    places = np.log(list(named)) if is_log else np.array(list(named))
    gap = np.diff(places).min() / np.ptp(places) if len(places) > 1 else 1.0
    # The values themselves are the ticks if their texts have room.
    has_room = len(places) <= MOST_TICKS and gap > 0.012 * (max(map(len, named.values())) + 1)
    ticks = tuple(AxisTick(value, text) for value, text in named.items()) if has_room else ()
    return Places(Axis(title, is_log=is_log, ticks=ticks), at, is_connected=True)


# ---- what the rows hold -----------------------------------------------------------------------------------------


def _list_series(rows: Rows, groups: Sequence[str] = (), *, is_together: bool = False) -> list[Series]:
    """The series that have numbers. Jitted and eager runs share a chart if one linear scale suits both. Next to
    something a hundred times slower, no change of the faster one would be visible.

    Args:
        groups: a name for each row (a tag, say): times and peaks of each, to keep it readable. Without them: also the
            parts of the peak.
        is_together: jitted and eager times in one chart, however far apart they are.
    """
    # Most programs have a few bytes of constants.
    has_constants = (rows["jit_constants_bytes"] > 0.01 * np.maximum(rows["jit_peak_bytes"], 0)).any()
    left_out = PARTS if groups else () if has_constants else PARTS[:1]
    of_row = np.array(groups or [""] * len(rows), np.object_)
    names = list(dict.fromkeys(of_row))
    found: list[Series] = []
    for column, (chart, usual) in SERIES.items():
        for name, label in zip(names, distinct(names, 32), strict=True):
            which = np.flatnonzero(of_row == name)
            value, low, high = _read(rows[which], column)
            if np.isfinite(value).any() and column not in left_out:
                told = (f"peak {chart}" if chart == "memory" else chart), label + ", mean" * column.endswith("mean_ms")
                found.append(Series(*(told if groups else (chart, usual)), column, which, value, low, high))
    times = np.concatenate([np.empty(0), *(one.value for one in found if one.chart == TIMES)])
    if is_together or spread(times) <= FAR:
        return found
    apart = {False: f"{TIMES}, jitted", True: f"{TIMES}, eager"}
    return [one._replace(chart=apart[one.is_hollow]) if one.chart == TIMES else one for one in found]


def _read(rows: Rows, column: str) -> tuple[Floats, Floats, Floats]:
    """The values of a column in seconds or bytes, and the ends of their intervals; NaN for a missing one."""
    none = np.full(len(rows), np.nan)
    if column.endswith("bytes"):
        return np.where(rows[column] >= 0, rows[column], np.nan), none, none
    value, kind = _seconds(rows, column), column.partition("_")[0]
    if column.endswith("median_ms"):
        return value, _seconds(rows, f"{kind}_low_ms"), _seconds(rows, f"{kind}_high_ms")
    if not column.endswith("mean_ms"):
        return value, none, none
    # All that older rows hold.
    value = np.where(np.isnan(_seconds(rows, f"{kind}_median_ms")), value, np.nan)
    deviation = _seconds(rows, f"{kind}_std_ms")
    return value, np.maximum(value - deviation, 0), value + deviation


def _seconds(rows: Rows, column: str) -> Floats:
    """Milliseconds of a column as seconds. 0 is what pytest-jax-bench writes for anything below 5 µs: not a reading."""
    values = rows[column] * 1e-3
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def spread(values: Floats) -> float:
    """Greatest divided by smallest of the values above 0; 1 without any."""
    positive = values[values > 0]
    return float(positive.max() / positive.min()) if len(positive) else 1.0


def texts(rows: Rows, column: str) -> list[str]:
    return [str(v) for v in rows[column]]


def commits(rows: Rows) -> list[str]:
    """Without the + of uncommitted changes, which belong to the commit that they began from."""
    return [c.rstrip("+") or UNKNOWN for c in texts(rows, "commit")]


def failures(rows: Rows) -> list[str]:
    """The failure of each row: timeout, crashed, …, or a check of its result; empty without one."""
    both = zip(texts(rows, "status"), texts(rows, "message"), strict=True)
    return ["doubtful result" * bool(m) if s in ("", "ok") else s.replace("_", " ") for s, m in both]


def instruments(rows: Rows) -> list[Instrument]:
    """Returns what must be equal for rows on one line: timer, environment, version of JAX.

    A row without a jitted time has no jitted timer. It is on the line of its machine's other rows, because the same
    timer reads their eager times.
    """
    found = list(zip(*(texts(rows, column) for column in ("timer", "environment", "jax")), strict=True))
    known = {(environment, jax): timer for timer, environment, jax in reversed(found) if timer and environment}
    return [(timer or known.get((environment, jax), ""), environment, jax) for timer, environment, jax in found]


# ---- text: any name of a test, a tag, a parameter or a commit as one short line ----------------------------------

LONGEST = 44
LONGEST_TEST = 60
LONGEST_COMMIT = 18


def short(text: Any, longest: int = LONGEST) -> str:
    """One line of at most `longest` columns, without the middle; unprintable characters become �."""
    line = "".join(c if c.isprintable() else "�" for c in one_line(str(text)))
    return cut_middle(line, longest) or "(empty)"


def distinct(texts: Sequence[Any], longest: int = LONGEST) -> list[str]:
    """A short line for each of `texts`, no two alike: those that differ only where they were cut are numbered."""
    lines: list[str] = []
    for text in texts:
        line, number = short(text, longest), 2
        while line in lines:
            line, number = f"{short(text, longest - 5)} ({number})", number + 1
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
    is_one_file = len({file for file, _, _ in parts}) == 1
    return [name if is_one_file and name else f"{file.rsplit('/', 1)[-1]}{mark}{name}" for file, mark, name in parts]
