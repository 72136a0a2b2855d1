"""Turns the rows of a CSV file into series: values with intervals in seconds and bytes, NaN for missing ones.

Only this module of the pictures knows the columns. A row of ours has a median with its 95 % interval. A row of
pytest-jax-bench has a mean with the standard deviation of its samples. The two kinds never share a series. -1 bytes and
a time of 0 are not readings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchax.model import Opaque

# Text for pictures: any name of a test, a tag, a parameter or a commit as one short line.


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


Floats = np.ndarray[Any, np.dtype[np.float64]]
Rows = np.ndarray[Any, Any]
"""A structured array, as `load_bench_data` gives it; columns of ours may be missing."""

FAR = 20.0
"""Values that are further apart than this factor do not share a linear scale."""
DOUBTFUL = "doubtful result"
"""A row that has its numbers, and a message that casts doubt on them."""
UNKNOWN = "unknown"
"""The commit of a row without git."""


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
