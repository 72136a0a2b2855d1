"""The data of the page that compares two versions: the numbers of one version, all cases in one file.

A version is a commit, a commit with uncommitted changes, or a run if no commit is known. Its file is a script, because
a page from disk cannot read any other kind. The file has an entry for each case and each environment that the version
was measured in. An entry holds the median of the newest row with its interval, or the ratio to each baseline with its
own interval. A later build reads the file back and replaces the numbers that are new.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchax.model import Comparison
from benchax.stats.verdicts import Verdict
from benchax.store.timelines import TimelineRow

TIMES, RATIOS = 6, 7
"""The length of one entry: case, environment, timer, median, low, high; case, environment, baseline, verdict, ratio,
low, high. A value that is not a number is a position in a list (`state.py`)."""
VERDICTS: tuple[Verdict, ...] = ("faster", "slower", "same", "unclear")
CALL = "benchaxVersion("
DIGITS = 6


Entries = NDArray[np.float64]
"""One in each line: a store may have a million of them, and tuples would take five times as much."""


@dataclass(frozen=True)
class Numbers:
    """The numbers of one version."""

    times: Entries
    ratios: Entries

    def with_newer(self, new: Numbers) -> Numbers:
        return Numbers(np.concatenate((self.times, new.times)), np.concatenate((self.ratios, new.ratios)))


def name_version(commit: str | None, is_dirty: bool | None, run: str) -> str:
    """Returns a version's name: the whole commit, with + for uncommitted changes, or the run if there is no commit."""
    return commit + "+" * bool(is_dirty) if commit else f"run {run}"


def shorten_version(name: str) -> str:
    """a1b2c3d4+; run 0f9e8d7c6b5a"""
    if name.startswith("run "):
        return name[:16]
    return name[:8] + "+" * name.endswith("+")


def version_of_row(row: TimelineRow) -> str:
    return name_version(row.commit, row.is_dirty, row.run_id)


def version_of_comparison(c: Comparison) -> str | None:
    """Returns None if nothing distinguishes the version from others."""
    return name_version(c.candidate.commit, c.candidate.is_dirty, "") if c.candidate.commit else None


def file_of(version: str) -> str:
    """A name of a version's file that no text of a stranger can lead astray."""
    return f"{hashlib.sha256(version.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}.js"


def number_or_nan(value: float | None) -> float:
    return math.nan if value is None else value


# ---- entries of many versions: before each stands the place of its version ---------------------------------------


def list_entries(listed: Sequence[Sequence[float]], width: int) -> Entries:
    """Makes entries from lists: each is a version, followed by as many numbers as `TIMES` or `RATIOS` states
    (`width`)."""
    return np.array(listed, dtype=float).reshape(-1, 1 + width)


def renumber(entries: Entries, columns: Mapping[int, Sequence[int]]) -> Entries:
    """The entries with other numbers in some columns: of each, what stands for 0, 1, 2 …"""
    found = entries.copy()
    for column, places in columns.items():
        found[:, column] = np.array(places, dtype=float)[entries[:, column].astype(int)]
    return found


def split_by_version(parts: Sequence[Entries], width: int, versions: int) -> list[Entries]:
    """The entries of each version, in their order."""
    entries = np.concatenate((list_entries((), width), *parts))
    ordered = entries[entries[:, 0].argsort(kind="stable")]
    ends = ordered[:, 0].searchsorted(range(versions + 1))
    return [ordered[a:b, 1:] for a, b in pairwise(ends)]


# ---- files ------------------------------------------------------------------------------------------------------


def render_numbers(version: str, found: Numbers) -> str:
    """The script: of each case in each environment the newest entry, in the order of cases."""
    times = {tuple(entry[:2]): entry for entry in found.times.tolist()}
    ratios = {tuple(entry[:3]): entry for entry in found.ratios.tolist()}
    document = f'{{"times":{_columns(times, TIMES)},"ratios":{_columns(ratios, RATIOS)}}}'
    # The name, like all texts, is ASCII without what could end the script or a comment in it.
    return f"{CALL}{json.dumps(file_of(version))},{document});\n"


def read_numbers(file: Path) -> Numbers:
    """Reads a file of an earlier build.

    Raises:
        ValueError, KeyError, TypeError, OSError: the file is missing, or differs from what benchax wrote.
    """
    text = file.read_text(encoding="ascii")
    if not text.startswith(CALL):
        raise ValueError("not a file of a version")
    document: dict[str, Any] = json.loads(text[text.index(",") + 1 : text.rindex(")")])
    return Numbers(_read_columns(document["times"], TIMES), _read_columns(document["ratios"], RATIOS))


def _read_columns(columns: list[list[float | None]], width: int) -> Entries:
    if len(columns) != width:
        raise ValueError("another number of columns")
    return np.array(columns, dtype=float).T  # null becomes nan


def _columns(entries: Mapping[Any, Sequence[float]], width: int) -> str:
    listed = [entries[key] for key in sorted(entries)]
    columns = zip(*listed, strict=True) if listed else ((),) * width
    whole = width - 3
    texts = (_write_places(column) if i < whole else _write_numbers(column) for i, column in enumerate(columns))
    return "[" + ",".join(f"[{','.join(column)}]" for column in texts) + "]"


def _write_places(column: Iterable[float]) -> list[str]:
    return [str(int(value)) for value in column]


def _write_numbers(column: Iterable[float]) -> list[str]:
    return [f"{value:.{DIGITS}g}" if math.isfinite(value) else "null" for value in column]
