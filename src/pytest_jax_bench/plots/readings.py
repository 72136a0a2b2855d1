"""Turns the rows of a CSV file into series: values with intervals in seconds and bytes, NaN for missing ones.

Only this module of the pictures knows the columns. A row of ours has a median with its 95 % interval. A row of
pytest-jax-bench has a mean with the standard deviation of its samples. The two kinds never share a series. -1 bytes and
a time of 0 are not readings.
"""

from __future__ import annotations

import colorsys
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


# A picture as data: panels of series along an axis. `pictures.py` makes them, `draw.py` draws them.


Floats = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.intp]]
Kind = Literal["time", "size"]


@dataclass(frozen=True)
class PictureSeries:
    """Readings of one colour, in seconds or bytes; NaN for a missing one."""

    label: str
    color: str
    rows: Indices
    """The indices of these rows in the picture; the axis knows their places."""
    value: Floats
    low: Floats
    high: Floats
    is_hollow: bool = False
    """Eager: the colour of its jitted partner, unfilled and dashed."""
    is_mean: bool = False

    @property
    def has_values(self) -> bool:
        return bool(np.isfinite(self.value).any())


@dataclass(frozen=True)
class Panel:
    title: str
    kind: Kind
    series: tuple[PictureSeries, ...]
    is_log: bool = False

    def finite(self) -> Floats:
        values = [s.value[np.isfinite(s.value)] for s in self.series]
        return np.concatenate(values) if values else np.empty(0)


@dataclass(frozen=True)
class Band:
    """A stretch of the axis that belongs together: the runs of one commit."""

    low: float
    high: float
    label: str


@dataclass(frozen=True)
class PictureAxis:
    """The arrangement of the rows: by runs, commits, numbers, or names."""

    label: str
    positions: Floats
    """Per row."""
    ticks: tuple[tuple[float, str], ...] = ()
    """Empty: chosen by matplotlib."""
    bands: tuple[Band, ...] = ()
    is_log: bool = False
    is_connected: bool = False
    """Whether there is something between two rows for a line to pass through."""
    are_names: bool = False
    """Names stand on the y axis, one below the other, where they can be read; values then run to the right."""


@dataclass(frozen=True)
class Picture:
    title: str
    axis: PictureAxis
    panels: tuple[Panel, ...]
    lines: Indices
    """Per row: which line it belongs to. Rows of different machines or timers are never connected."""
    failures: tuple[str, ...]
    """Per row: timeout, crashed, …; or nothing."""
    notes: tuple[str, ...] = ()
    has_common_legend: bool = False
    """One for all panels, which show the same series."""


Rows = np.ndarray[Any, Any]
"""A structured array, as `load_bench_data` gives it; columns of ours may be missing."""

# Okabe and Ito (2008): told apart by colour-blind readers too. The last six are for crowded pictures.
BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, "#8C5A2B", "#333333", "#9a9a9a", "#3f51b5", "#8bc34a", "#b8a100")
FAR = 20.0
"""Values that are further apart than this factor do not share a linear scale."""
DOUBTFUL = "doubtful result"
"""A row that has its numbers, and a message that casts doubt on them."""
UNKNOWN = "unknown"
"""The commit, as the plugin writes it where there is no git."""


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


def single(rows: Rows, *, together: bool = False, is_brief: bool = False) -> tuple[Panel, ...]:
    """All there is to show of rows without groups.

    Args:
        together: jitted and eager times in one panel, however far apart they are.
        is_brief: of the memory only the peaks.
    """
    every = np.arange(len(rows))
    jit, eager = _times(rows, every, "jit", "jitted", BLUE), _times(rows, every, "eager", "eager", ORANGE, hollow=True)
    memory = [_series("jitted, peak", BLUE, every, sizes(rows, "jit_peak_bytes"))]
    if not is_brief:
        memory += _parts(rows, every)
    memory.append(_series("eager, peak", ORANGE, every, sizes(rows, "eager_peak_bytes"), hollow=True))
    compiling = [_series("compile", GREEN, every, seconds(rows, "compile_ms"))]
    return _panels(jit, eager, compiling, memory, together, "peak memory" if is_brief else "memory")


def _parts(rows: Rows, every: Indices) -> list[PictureSeries]:
    """Returns the parts of the peak. It includes constants only if they matter, as most programs have a few bytes of
    them."""
    parts = [_series("jitted, temporary", SKY, every, sizes(rows, "jit_temporary_bytes"))]
    peak, constants = sizes(rows, "jit_peak_bytes"), sizes(rows, "jit_constants_bytes")
    if (np.nan_to_num(constants) > 0.01 * np.nan_to_num(peak)).any():
        parts.append(_series("jitted, constants", PURPLE, every, constants))
    return parts


def group_into_panels(rows: Rows, names: list[str], *, together: bool = False) -> tuple[Panel, ...]:
    """One colour per name (a tag, say), eager and jitted: times and peaks only, to keep it readable."""
    jit: list[PictureSeries] = []
    eager: list[PictureSeries] = []
    compiling: list[PictureSeries] = []
    memory: list[PictureSeries] = []
    unique = list(dict.fromkeys(names))
    for number, (name, label) in enumerate(zip(unique, distinct(unique, 32), strict=True)):
        which = np.array([i for i, n in enumerate(names) if n == name], dtype=np.intp)
        color, some = _color(number, len(unique)), rows[which]
        jit += _times(some, which, "jit", label, color)
        eager += _times(some, which, "eager", label, color, hollow=True)
        compiling.append(_series(label, color, which, seconds(some, "compile_ms")))
        memory.append(_series(label, color, which, sizes(some, "jit_peak_bytes")))
        memory.append(_series(label, color, which, sizes(some, "eager_peak_bytes"), hollow=True))
    return _panels(jit, eager, compiling, memory, together, "peak memory")


def _color(number: int, count: int) -> str:
    """The color of one of `count` series; no two are the same, though of dozens neighbours are hard to tell."""
    if count <= len(PALETTE):
        return PALETTE[number]
    red, green, blue = colorsys.hls_to_rgb(number / count, (0.3, 0.45, 0.6)[number % 3], 0.75)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def spread(values: Floats) -> float:
    """Greatest divided by smallest of the values above 0; 1 without any."""
    positive = values[values > 0]
    return float(positive.max() / positive.min()) if len(positive) else 1.0


def _panels(
    jit: list[PictureSeries],
    eager: list[PictureSeries],
    compiling: list[PictureSeries],
    memory: list[PictureSeries],
    together: bool,
    of_memory: str,
) -> tuple[Panel, ...]:
    """Returns the panels that have numbers. Jitted and eager runs share a panel if one linear scale suits both. Next to
    something a hundred times slower, no change of the faster one would be visible."""
    both = Panel("run time", "time", _drop_empty([*jit, *eager]))
    apart = [Panel("run time, jitted", "time", _drop_empty(jit)), Panel("run time, eager", "time", _drop_empty(eager))]
    times = [both] if together or spread(both.finite()) <= FAR else apart
    rest = [Panel("compile time", "time", _drop_empty(compiling)), Panel(of_memory, "size", _drop_empty(memory))]
    return tuple(_choose_scale(panel) for panel in (*times, *rest) if panel.series)


def _choose_scale(panel: Panel) -> Panel:
    # The parts of the memory may be far apart: what is small beside the peak may look small.
    far = [panel.finite()] if panel.kind == "time" else [s.value[np.isfinite(s.value)] for s in panel.series]
    return Panel(panel.title, panel.kind, panel.series, is_log=any(spread(values) > FAR for values in far))


def _drop_empty(series: list[PictureSeries]) -> tuple[PictureSeries, ...]:
    return tuple(s for s in series if s.has_values)


def _times(rows: Rows, which: Indices, what: str, label: str, color: str, hollow: bool = False) -> list[PictureSeries]:
    median, mean, deviation = (seconds(rows, f"{what}_{column}_ms") for column in ("median", "mean", "std"))
    low, high = seconds(rows, f"{what}_low_ms"), seconds(rows, f"{what}_high_ms")
    old = np.where(np.isnan(median), mean, np.nan)
    return [
        PictureSeries(label, color, which, median, low, high, hollow),
        PictureSeries(label, color, which, old, old - deviation, old + deviation, hollow, is_mean=True),
    ]


def _series(label: str, color: str, which: Indices, value: Floats, hollow: bool = False) -> PictureSeries:
    none = np.full(len(value), np.nan)
    return PictureSeries(label, color, which, value, none, none, hollow)


def _column(rows: Rows, column: str) -> Floats:
    if column not in (rows.dtype.names or ()):
        return np.full(len(rows), np.nan)
    return np.asarray(rows[column], dtype=np.float64)
