"""The work of one process for a site: it reads cases, writes their pages, and writes files of versions.

It knows nothing of other cases. It numbers environments, versions, timers and baselines in the order in which they
occur in the case; `publishing.py` knows their places in the whole site.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchax.comparing.history import History, history
from benchax.model import Comparison
from benchax.reporting.pages.page import LONGEST_TITLE, render_page, write_page
from benchax.reporting.site import case_page
from benchax.reporting.site.case_page import (
    VERDICTS,
    CaseSummary,
    CaseTimeline,
    describe_facts,
    file_of,
    shorten_label,
    summarize,
    version_of_comparison,
    version_of_row,
)
from benchax.reporting.site.lists import frame
from benchax.store.comparisons import CaseActivity, TimelineRow, read_comparisons, read_environment, read_timeline
from benchax.store.database import DatabaseStore

SLUG = re.compile("[^a-z0-9]+")
Entry = tuple[float, ...]
Entries = NDArray[np.float64]
"""One in each line: a store may have a million of them, and tuples would take five times as much."""
TIMES, RATIOS = 6, 7
"""The length of one entry: case, environment, timer, median, low, high; case, environment, baseline, verdict, ratio,
low, high. A value that is not a number is a position in a list of `SiteIndex`."""
CALL = "benchaxVersion("
DIGITS = 6


@dataclass(frozen=True)
class WrittenCase:
    """A case whose page is written, and what it adds to files that it shares with others."""

    summary: CaseSummary
    is_changed: bool
    """Its page is another one than before."""
    environments: Mapping[str, Mapping[str, str]]
    """Facts by fingerprint."""
    versions: Mapping[str, str]
    """Name → when it was measured first."""
    timers: Sequence[str]
    baselines: Sequence[str]
    times: Entries
    """The number of the version precedes each of them."""
    ratios: Entries


@dataclass(frozen=True)
class VersionNumbers:
    """The numbers of one version."""

    name: str
    times: Entries
    ratios: Entries


class CaseWriter:
    """Keeps what it has read of environments."""

    def __init__(self, store: DatabaseStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self._facts = dict[str, dict[str, str]]()

    def write_case(self, activity: CaseActivity) -> WrittenCase:
        rows = read_timeline(self.store, activity)
        compared = read_comparisons(self.store, activity)
        facts = self._describe_environments(rows, compared)
        found = CaseTimeline(activity.case, rows, _histories(compared), facts)
        page = _name_page(activity)
        title = shorten_label(activity.case)[:LONGEST_TITLE]
        text = render_page(title, case_page.documents(found), frame("../"))
        is_changed = write_changed(self.folder / "cases" / page, text)
        numbered = _Numbering(activity.id, facts)
        times = list_entries(list(numbered.times(rows)), TIMES)
        ratios = list_entries(list(numbered.ratios(compared)), RATIOS)
        summary = summarize(activity, found, page, numbered.environments)
        names = list(numbered.timers), list(numbered.baselines)
        return WrittenCase(summary, is_changed, facts, numbered.first_seen, *names, times, ratios)

    def _describe_environments(
        self, rows: Sequence[TimelineRow], compared: Sequence[Comparison]
    ) -> dict[str, dict[str, str]]:
        """Their facts by fingerprint, in the order in which they came."""
        found = dict[str, dict[str, str]]()
        for row in rows:
            if row.fingerprint not in found:
                if row.fingerprint not in self._facts:
                    self._facts[row.fingerprint] = describe_facts(read_environment(self.store, row))
                found[row.fingerprint] = self._facts[row.fingerprint]
        for c in compared:
            if c.environment is not None and c.environment.fingerprint not in found:
                found[c.environment.fingerprint] = describe_facts(c.environment)
        return found

    def write_version(self, found: VersionNumbers) -> bool:
        """Writes its file. Returns whether it is another one than before."""
        return write_changed(self.folder / "data" / file_of(found.name), render_numbers(found))


def write_changed(file: Path, text: str) -> bool:
    """Leaves a file as it is if it has this text already."""
    with suppress(OSError, ValueError):
        # As `write_page` writes it.
        if file.read_bytes() == text.encode("utf-8", "backslashreplace"):
            return False
    write_page(file, text)
    return True


class _Numbering:
    """Numbers what entries of a case name, as it comes."""

    def __init__(self, case: int, environments: Mapping[str, object]) -> None:
        self.case = case
        self.environments = {fingerprint: i for i, fingerprint in enumerate(environments)}
        self.first_seen = dict[str, str]()
        """Versions, and when."""
        self.timers = dict[str, int]()
        self.baselines = dict[str, int]()
        self._versions = dict[str, int]()

    def times(self, rows: Sequence[TimelineRow]) -> Iterator[Entry]:
        for row in rows:
            version = self._number_version(version_of_row(row), row.started_at)
            if row.median_s is not None:
                timer = self.timers.setdefault(row.timer or "", len(self.timers))
                where = (version, self.case, self.environments[row.fingerprint], timer)
                yield *where, row.median_s, _or_nan(row.low_s), _or_nan(row.high_s)

    def ratios(self, compared: Sequence[Comparison]) -> Iterator[Entry]:
        for c in compared:
            name = version_of_comparison(c)
            if name is None or c.metric != "run" or c.ratio is None or c.environment is None:
                continue
            version = self._number_version(name, c.compared_at)
            baseline = self.baselines.setdefault(c.baseline.label, len(self.baselines))
            where = (version, self.case, self.environments[c.environment.fingerprint], baseline)
            yield *where, VERDICTS.index(c.verdict), c.ratio, _or_nan(c.low), _or_nan(c.high)

    def _number_version(self, name: str, at: str) -> int:
        if at < self.first_seen.setdefault(name, at):
            self.first_seen[name] = at
        return self._versions.setdefault(name, len(self._versions))


def _histories(compared: Sequence[Comparison]) -> list[History]:
    """One for each metric and baseline; that with the newest comparison last."""
    series: dict[tuple[str, str], list[Comparison]] = {}
    for c in compared:
        key = c.metric, c.baseline.label
        found = series.pop(key, [])
        found.append(c)
        series[key] = found  # at the end now
    return [history(each) for each in series.values()]


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _name_page(activity: CaseActivity) -> str:
    """A part of its name to read, and a digest that tells it from all others."""
    slug = SLUG.sub("-", activity.case.name[:200].lower()).strip("-")[:40].strip("-")
    return f"{slug}-{activity.key[:16]}.html" if slug else f"{activity.key[:16]}.html"


# ---- entries of many versions: before each is the place of its version -------------------------------------------


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


def render_numbers(found: VersionNumbers) -> str:
    """The script: of each case in each environment the newest entry, in the order of cases."""
    times = {tuple(entry[:2]): entry for entry in found.times.tolist()}
    ratios = {tuple(entry[:3]): entry for entry in found.ratios.tolist()}
    document = f'{{"times":{_columns(times, TIMES)},"ratios":{_columns(ratios, RATIOS)}}}'
    # The name, like all texts, is ASCII without what could end the script or a comment in it.
    return f"{CALL}{json.dumps(file_of(found.name))},{document});\n"


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
