"""Where rows stand: along runs, commits, the values of a parameter, or names one below the other.

A run stands at its run_id and nowhere else, also where a history has tags or gaps, and so does the name of its commit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_jax_bench.plots.labels import LONGEST_COMMIT, as_text, distinct, natural, short
from pytest_jax_bench.plots.model import Band, Floats, PictureAxis
from pytest_jax_bench.plots.readings import FAR, Rows, commits

MOST_TICKS = 10


def along_runs(rows: Rows) -> PictureAxis:
    """Runs in a line, with a band for each stretch of runs of one commit. Rows are in the order of their runs."""
    at = rows["run_id"].astype(np.float64)
    names = commits(rows)
    first = [i for i in range(len(rows)) if i == 0 or names[i] != names[i - 1]]
    borders = [at[0] - 0.5 if i == 0 else (at[i - 1] + at[i]) / 2 for i in first] + [at[-1] + 0.5]
    bands = [Band(borders[k], borders[k + 1], short(names[i], LONGEST_COMMIT)) for k, i in enumerate(first)]
    return PictureAxis("run", at, bands=tuple(bands), is_connected=True)


def along_commits(rows: Rows) -> PictureAxis:
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
    labels = distinct(unique, LONGEST_COMMIT)
    bands = [Band(number - 0.5, number + 0.5, label) for number, label in enumerate(labels)]
    return PictureAxis("commit", at, bands=tuple(bands))


def along_names(names: Sequence[str], longest: int) -> PictureAxis:
    """A line for each row, even for two of one name."""
    lines = distinct(names, longest)
    return PictureAxis("", np.arange(len(lines), dtype=np.float64), tuple(enumerate(lines)), are_names=True)


def along_parameter(values: Sequence[Any], name: str) -> PictureAxis:
    """Numbers along a line, logarithmic where they span decades; anything else as names."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values):
        return _along_numbers(values, name)
    unique = sorted({repr(v): v for v in values}.values(), key=natural)
    shown = [as_text(v) for v in unique]
    # None and "None", 1 and "1" are different values.
    shown = [repr(v) if shown.count(s) > 1 else s for v, s in zip(unique, shown, strict=True)]
    number = {repr(v): i for i, v in enumerate(unique)}
    at = np.array([number[repr(v)] for v in values], dtype=np.float64)
    return PictureAxis(short(name), at, tuple(enumerate(distinct(shown))), are_names=True)


def _along_numbers(values: Sequence[float], name: str) -> PictureAxis:
    at = np.array(values, dtype=np.float64)
    is_log = at.min() > 0 and at.max() > FAR * at.min()
    texts = {float(v): str(v) for v in values}
    places = np.log(sorted(texts)) if is_log else np.array(sorted(texts))
    ticks = [(place, texts[place]) for place in sorted(texts)] if _fit(places, texts) else []
    return PictureAxis(short(name), at, tuple(ticks), is_log=bool(is_log), is_connected=True)


def _fit(places: Floats, texts: dict[float, str]) -> bool:
    """Whether the values themselves can be the ticks."""
    longest = max(map(len, texts.values()))
    if len(places) == 1:
        return longest <= 20
    gap = np.diff(places).min() / (places[-1] - places[0])
    return len(places) <= MOST_TICKS and bool(gap > 0.012 * (longest + 1))
