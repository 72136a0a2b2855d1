"""The pictures, from rows to a `Picture`: history, tags, over a parameter, summary of many tests.

History: all runs of one test, along the runs or the commits. The others: only the newest run of each name. Symbols and
a note distinguish rows of different machines, versions or timers; a line never connects them. Text below each picture
explains its dots and bars, and the differences between its rows.

A run is always at its run_id, also if a history has tags or gaps, and so is the name of its commit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from benchax.units import plural
from pytest_jax_bench.plots.readings import (
    FAR,
    LONGEST,
    LONGEST_COMMIT,
    LONGEST_TEST,
    UNKNOWN,
    Band,
    Floats,
    Panel,
    Picture,
    PictureAxis,
    Rows,
    as_text,
    commits,
    distinct,
    failures,
    group_into_panels,
    instruments,
    list_texts,
    names_of_tests,
    natural,
    short,
    single,
    texts,
)

MOST_RUNS = 1000
"""The newest runs are shown of a longer history: a page is not wider than that."""
PAGE = 60
"""Lines per page of the summary."""
MOST_TICKS = 10
"""Values of a parameter that can themselves be the ticks."""

SYMBOLS = ("●", "■", "◆", "▲", "▼")
"""The markers of `draw.py`, for use in a sentence."""


def history(rows: Rows, title: str, x_axis: Literal["run", "commit"] = "run", most: int = MOST_RUNS) -> Picture:
    """All runs of one test, oldest left; one colour per tag if it has several."""
    rows = rows[np.argsort(rows["run_id"], kind="stable")]
    runs = np.unique(rows["run_id"])
    rows = rows[np.isin(rows["run_id"], runs[-most:])]
    count = plural(len(runs), "run")
    if len(runs) > most:
        count = f"The last {most} of {count}"
    axis = along_commits(rows) if x_axis == "commit" else along_runs(rows)
    known = set(commits(rows)) - {UNKNOWN}
    extent = f"{count}, {plural(len(known), 'commit')}" if known else f"{count}, commit unknown"
    tags = texts(rows, "tag")
    if len(set(tags)) > 1:
        return _picture(rows, title, axis, group_into_panels(rows, tags), extent, tags)
    return _picture(rows, title, axis, single(rows), extent)


def has_tags(rows: Rows) -> bool:
    """Whether the newest run has several."""
    return len(set(texts(_newest_run(rows), "tag"))) > 1


def by_tag(rows: Rows, title: str) -> Picture:
    """The tags of the newest run, one below the other."""
    rows = _newest_run(rows)
    axis = along_names(texts(rows, "tag"), LONGEST)
    return _picture(rows, f"{title}, newest run", axis, single(rows, together=True), _which(rows))


def by_parameter(rows: Rows, values: dict[str, list[Any]], name: str, title: str) -> Picture:
    """The newest run for each value of the parameter `name`; one colour per tag and combination of the others.

    Args:
        values: of each parameter, its value in each row.
    """
    rows, values = _newest_of_each(rows, values)
    axis = along_parameter(values[name], name)
    others = _others(rows, values, name)
    title = f"{title}, over {short(name)}"
    if len(set(others)) > 1:
        panels = group_into_panels(rows, others, together=True)
        return _picture(rows, title, axis, panels, _which(rows), others)
    return _picture(rows, title, axis, single(rows, together=True), _which(rows))


def summary(tests: Sequence[tuple[str, Rows]]) -> list[Picture]:
    """The newest run of each test and tag, one below the other, on as many pages as it takes.

    Args:
        tests: the id of each test, and its rows.
    """
    entries: list[tuple[str, Rows]] = []
    for name, (_, rows) in zip(names_of_tests([nodeid for nodeid, _ in tests]), tests, strict=True):
        last = _newest_run(rows)
        tags = texts(last, "tag")
        for i, tag in enumerate(tags):
            entries.append((f"{name} · {short(tag, 24)}" if len(tags) > 1 else name, last[i : i + 1]))
    pages = [entries[i : i + PAGE] for i in range(0, len(entries), PAGE)]
    count = plural(len(tests), "test")
    return [_page(page, count, f", page {i} of {len(pages)}" * (len(pages) > 1)) for i, page in enumerate(pages, 1)]


def _page(entries: Sequence[tuple[str, Rows]], count: str, page: str) -> Picture:
    rows = np.concatenate([row for _, row in entries])
    axis = along_names([name for name, _ in entries], LONGEST_TEST)
    panels = single(rows, together=True, is_brief=True)
    return _picture(rows, f"Summary of {count}{page}", axis, panels, _which(rows))


def _picture(
    rows: Rows, title: str, axis: PictureAxis, panels: tuple[Panel, ...], extent: str, groups: Sequence[str] = ()
) -> Picture:
    used = instruments(rows)
    # A row without a number belongs to no line.
    measured = {int(i) for panel in panels for one in panel.series for i in one.rows[np.isfinite(one.value)]}
    unique = list(dict.fromkeys(used[i] for i in sorted(measured)))
    return Picture(
        title=short(title, 90),
        axis=axis,
        panels=panels,
        lines=np.array([unique.index(one) if one in unique else 0 for one in used], dtype=np.intp),
        failures=failures(rows),
        notes=(f"{extent}.", *_describe_failures(rows, groups), *notes(panels, unique, axis.is_connected)),
        has_common_legend=bool(groups),
    )


def _which(rows: Rows) -> str:
    """Names the commits of the newest runs: not all need be from the same commit."""
    names = [short(c, LONGEST_COMMIT) for c in dict.fromkeys(commits(rows))]
    if len(names) == 1:
        return f"The newest run of each, commit {names[0]}"
    return f"The newest run of each, which are not all of one commit: {list_texts(names)}"


def _describe_failures(rows: Rows, groups: Sequence[str]) -> list[str]:
    """Lists the failures with their groups, because a mark has no room for its group."""
    named = [f"{short(group, 32)} ({kind})" for group, kind in zip(groups, failures(rows), strict=False) if kind]
    return [f"Failed: {list_texts(list(dict.fromkeys(named)))}."] if named else []


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


def notes(panels: Sequence[Panel], instruments: Sequence[tuple[str, str, str]], is_connected: bool) -> tuple[str, ...]:
    """Returns the sentences below a picture.

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
        sentences.append("+ is a mean with the standard deviation of its samples, which is all that older rows hold")
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
    words = ("timer", "environment", "jax")
    known = [f"{word} {short(value, 10)}" for word, value, is_told in zip(words, instrument, differ, strict=True)
             if is_told and value]  # fmt: skip
    return ", ".join(known) or ("machine and timer unknown" if not instrument[1] else "without a jitted run time")


# ---- where rows stand ------------------------------------------------------------------------------------------


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
