"""The work of one process for a site: it reads cases, writes their pages, and writes files of versions.

It knows nothing of other cases. It numbers environments, versions, timers and baselines in the order in which they
occur in the case; `publishing.py` knows their places in the whole site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchax.comparing.history import History, history
from benchax.errors import UsageError
from benchax.model import Comparison
from benchax.reporting.pages.page import LONGEST_TITLE, render_page, write_page
from benchax.reporting.site import case_page
from benchax.reporting.site.case_page import CaseTimeline, describe_facts, shorten_label, summarize
from benchax.reporting.site.lists import frame
from benchax.reporting.site.state import (
    FILE,
    RATIOS,
    TIMES,
    VERDICTS,
    CaseSummary,
    Entries,
    Numbers,
    file_of,
    list_entries,
    number_or_nan,
    read_numbers,
    render_numbers,
    version_of_comparison,
    version_of_row,
)
from benchax.store.database import DatabaseStore
from benchax.store.timelines import CaseActivity, TimelineRow, read_comparisons, read_environment, read_timeline

SLUG = re.compile("[^a-z0-9]+")
Entry = tuple[float, ...]


@dataclass(frozen=True)
class CaseTask:
    activity: CaseActivity
    known: CaseSummary | None
    """The summary from the previous build."""


@dataclass(frozen=True)
class WrittenCase:
    """A case whose page is written, and what it adds to files that it shares with others."""

    summary: CaseSummary
    environments: Mapping[str, Mapping[str, str]]
    """Facts by fingerprint."""
    versions: Mapping[str, str]
    """Name → when it was measured first."""
    timers: Sequence[str]
    baselines: Sequence[str]
    times: Entries
    """Times that the files of versions do not have yet. The number of the version precedes each of them."""
    ratios: Entries


@dataclass(frozen=True)
class VersionTask:
    name: str
    new: Numbers
    is_known: bool
    """Its file has numbers of an earlier time."""


class CaseWriter:
    """Keeps what it has read of environments."""

    def __init__(self, store: DatabaseStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self._facts = dict[str, dict[str, str]]()

    def write_case(self, task: CaseTask) -> WrittenCase:
        activity, known = task.activity, task.known
        rows = read_timeline(self.store, activity)
        compared = read_comparisons(self.store, activity)
        facts = self._describe_environments(rows, compared)
        found = CaseTimeline(activity.case, rows, _histories(compared), facts)
        page = known.page if known else _name_page(activity)
        title = shorten_label(activity.case)[:LONGEST_TITLE]
        write_page(self.folder / "cases" / page, render_page(title, case_page.documents(found), frame("../")))
        numbered = _Numbering(activity.id, facts)
        new_rows, new_compared = _select_new(activity, rows, compared, known)
        times = list_entries(list(numbered.times(new_rows)), TIMES)
        ratios = list_entries(list(numbered.ratios(new_compared)), RATIOS)
        summary = summarize(activity, found, page, numbered.environments)
        names = list(numbered.timers), list(numbered.baselines)
        return WrittenCase(summary, facts, numbered.first_seen, *names, times, ratios)

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

    def write_version(self, task: VersionTask) -> None:
        """Writes its file, with what was in it and is not new."""
        file = self.folder / "data" / file_of(task.name)
        found = self._numbers_before(file).with_newer(task.new) if task.is_known else task.new
        write_page(file, render_numbers(task.name, found))

    def _numbers_before(self, file: Path) -> Numbers:
        try:
            return read_numbers(file)
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            problem = f"{str(file)!r} is not as benchax wrote it: {error}"
            hint = f"remove {self.folder / FILE}: then all of it is written anew"
            raise UsageError(problem, "a file of a site", hint) from error


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
                yield *where, row.median_s, number_or_nan(row.low_s), number_or_nan(row.high_s)

    def ratios(self, compared: Sequence[Comparison]) -> Iterator[Entry]:
        for c in compared:
            name = version_of_comparison(c)
            if name is None or c.metric != "run" or c.ratio is None or c.environment is None:
                continue
            version = self._number_version(name, c.compared_at)
            baseline = self.baselines.setdefault(c.baseline.label, len(self.baselines))
            where = (version, self.case, self.environments[c.environment.fingerprint], baseline)
            yield *where, VERDICTS.index(c.verdict), c.ratio, number_or_nan(c.low), number_or_nan(c.high)

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


def _select_new(
    activity: CaseActivity, rows: Sequence[TimelineRow], compared: Sequence[Comparison], known: CaseSummary | None
) -> tuple[Sequence[TimelineRow], Sequence[Comparison]]:
    """Returns the rows since the previous build. If a server inserted an older number after a newer one, it returns all
    rows."""
    if known is None:
        return rows, compared
    new = [row for row in rows if row.id > known.seen[1]]
    return new if len(new) == activity.rows - known.seen[0] else rows, compared[known.seen[2] :]


def _name_page(activity: CaseActivity) -> str:
    """A part of its name to read, and a digest that tells it from all others."""
    slug = SLUG.sub("-", activity.case.name[:200].lower()).strip("-")[:40].strip("-")
    return f"{slug}-{activity.key[:16]}.html" if slug else f"{activity.key[:16]}.html"
