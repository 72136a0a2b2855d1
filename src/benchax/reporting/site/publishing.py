"""Writes a site from a store: only whole files, and only pages of cases whose rows changed. The folder holds the state
of the previous build (`state.py`). A build writes it last, so that the next build completes one that was stopped. One
process writes at a time.
"""

from __future__ import annotations

import hashlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from benchax.environment import count_cores
from benchax.errors import UsageError
from benchax.printable import show_line, spell_for_xml
from benchax.reporting.document import Document
from benchax.reporting.html import Markup
from benchax.reporting.pages.page import ASSETS, EMPTY, asset_text, render_page, write_page
from benchax.reporting.site.case_page import name_briefly
from benchax.reporting.site.case_writer import CaseTask, CaseWriter, VersionTask, WrittenCase
from benchax.reporting.site.lists import (
    INDEX,
    Found,
    comparing_page,
    comparing_placeholder,
    describe_certainty,
    frame,
    list_changes,
    lists_of_cases,
    name_list,
    overview,
    render_index,
)
from benchax.reporting.site.processes import Workers, open_workers
from benchax.reporting.site.state import (
    FILE,
    RATIOS,
    TIMES,
    CaseSummary,
    Entries,
    Numbers,
    SiteState,
    file_of,
    new_state,
    read_state,
    render_state,
    renumber,
    split_by_version,
)
from benchax.store.database import DatabaseStore
from benchax.store.file_lock import only_writer
from benchax.store.timelines import CaseActivity, list_activity

# The feed of regressions (Atom, RFC 4287), the newest first. Links are relative: the feed does not know its address.
#
# An entry keeps its id for as long as the change begins at the same commit.

MOST_ENTRIES = 50
ATOM = "http://www.w3.org/2005/Atom"
# What XML 1.0 cannot hold, even escaped (2.2).


def render_feed(cases: Sequence[CaseSummary], store: str) -> str:
    """Args:
    store: digest of the place of the rows, which tells the feed from others.
    """
    found = [each for each in list_changes(cases) if each[1].is_worse and not each[1].is_sign]
    recent = [each for each in list_changes(cases) if each[1].is_recent and not each[1].is_sign]
    feed = ET.Element("feed", xmlns=ATOM)
    _add(feed, "id", f"urn:benchax:site:{store[:32]}")
    _add(feed, "title", "What got slower, or takes more")
    _add(feed, "subtitle", " ".join(describe_certainty(cases, recent)))
    _add(feed, "updated", _date(max((change.at for _, change in found), default=max(c.newest_at for c in cases))))
    _add(ET.SubElement(feed, "author"), "name", "benchax")
    ET.SubElement(feed, "link", rel="self", href="feed.xml")
    ET.SubElement(feed, "link", rel="alternate", href="index.html")
    for each in found[:MOST_ENTRIES]:
        _add_entry(feed, each, store)
    ET.indent(feed)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(feed, encoding="unicode")}\n'


def _add_entry(feed: ET.Element, found: Found, store: str) -> None:
    case, change = found
    entry = ET.SubElement(feed, "entry")
    name = "\n".join((store, case.page, change.metric, change.baseline, change.commit, change.at))
    _add(entry, "id", f"urn:benchax:change:{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}")
    _add(entry, "title", f"{case.label}: {change.size} from {change.commit} on")
    _add(entry, "updated", _date(change.at))
    ET.SubElement(entry, "link", rel="alternate", href=f"cases/{case.page}")
    seen = "; ".join(
        text
        for text in (
            f"at that commit {change.there}" * bool(change.there),
            f"newest {change.newest}" * bool(change.newest),
        )
        if text
    )
    text = (
        f"{change.metric} against {change.baseline}: {change.size} ({change.sure}); the last before it is {change.last}"
    )
    _add(entry, "summary", f"{text}; {seen}" if seen else text)


def _add(parent: ET.Element, tag: str, text: str) -> None:
    ET.SubElement(parent, tag).text = spell_for_xml(show_line(text))


def _date(text: str) -> str:
    """RFC 3339, which ISO 8601 is where it has a time and a zone."""
    return (
        text
        if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text)
        else "1970-01-01T00:00:00Z"
    )


LICENCE = "echarts-LICENSES.txt"
OWN_ASSETS = ("site.css", "site.js")
LOCK = ".site-lock"
PAGE = 50
"""Rows or comparisons that take as long to read and judge as a page takes to write that has none."""
FEWEST = 30_000
"""The number of rows from which a separate process starts."""


@dataclass(frozen=True)
class Published:
    """The files that this build wrote; the others existed already."""

    folder: Path
    cases: int
    written: int
    """Pages of cases."""
    versions: int
    versions_written: int
    others: int
    """Lists, the feed, styles and scripts."""


def publish(store: DatabaseStore, folder: Path) -> Published:
    """Brings the site in `folder` up to the rows of `store`.

    Raises:
        StoreError: nothing was ever stored there, or it cannot be read; or another process is writing to `folder`.
        UsageError: the store has no rows, `folder` cannot be written to, or it holds what is not a site of benchax.
    """
    activity = list_activity(store)
    if not activity:
        raise UsageError(f"there are no rows in {store.where}", "rows of `benchax run`, or of `benchax compare`")
    with _own(folder), store.held_open():
        return _Publishing(store, folder, activity).write()


@contextmanager
def _own(folder: Path) -> Generator[None]:
    """The folder is made, is ours, and is written to by nobody else."""
    folders = (folder, folder / "cases", folder / "data", folder / "assets")
    try:
        for each in folders:
            if each.exists() and not each.is_dir():
                raise UsageError(f"cannot write a site to {str(folder)!r}: {each.name} is a file", "a folder")
        if (folder / "index.html").exists() and not (folder / LOCK).exists() and not (folder / FILE).exists():
            problem = f"{str(folder)!r} has an index.html that benchax did not write"
            raise UsageError(problem, "a new folder, or one of a site", "name another one with --output")
        for each in folders:
            each.mkdir(parents=True, exist_ok=True)
        with only_writer(folder / LOCK):
            yield
    except (OSError, ValueError) as error:  # ValueError: a zero byte in its name
        if isinstance(error, UsageError):
            raise
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write a site to {str(folder)!r}: {why}", "a folder that can be written to") from error


class _Publishing:
    """One time."""

    def __init__(self, store: DatabaseStore, folder: Path, activity: Sequence[CaseActivity]) -> None:
        self.store, self.folder, self.activity = store, folder, activity
        self.before = self._state_before()
        fresh = new_state(store.where)
        # What stands in files of versions by its place keeps that place.
        self.state = replace(self.before, cases={}, versions=dict(self.before.versions)) if self.before else fresh
        self.environments = {name: i for i, name in enumerate(self.state.environments)}
        self.versions = {name: i for i, name in enumerate(self.state.versions)}
        self.times, self.ratios = list[Entries](), list[Entries]()
        """New ones, of all cases that were written."""
        self.lists = set[str]()
        self.written = self.versions_written = self.others = 0

    def _state_before(self) -> SiteState | None:
        """Returns None if everything must be written again."""
        found, fresh = read_state(self.folder), new_state(self.store.where)
        if found is None or (found.store, found.benchax, found.format) != (fresh.store, fresh.benchax, fresh.format):
            return None
        is_same = all(found.cases[a.key].id == a.id for a in self.activity if a.key in found.cases)
        is_whole = all((self.folder / "data" / file_of(name)).exists() for name in found.versions)
        return found if is_same and is_whole else None

    def write(self) -> Published:
        self._write_assets()
        tasks = self._list_tasks()
        with open_workers(CaseWriter(self.store, self.folder), _choose_processes(tasks)) as workers:
            done = (self._add_case(each) for each in workers.map(CaseWriter.write_case, tasks))
            self._collect_cases(dict(zip((task.activity.key for task in tasks), done, strict=True)))
            self._write_versions(workers)
        self._write_lists()
        self._remove_old()
        write_page(self.folder / FILE, render_state(self.state))
        return Published(
            self.folder, len(self.activity), self.written, len(self.state.versions), self.versions_written, self.others
        )

    # ---- cases --------------------------------------------------------------------------------------------------

    def _list_tasks(self) -> list[CaseTask]:
        """The cases whose pages are to be written."""
        known = self.before.cases if self.before else {}
        tasks = [CaseTask(each, known.get(each.key)) for each in self.activity]
        return [task for task in tasks if not self._is_written(task)]

    def _is_written(self, task: CaseTask) -> bool:
        known = task.known
        return known is not None and known.seen == task.activity.seen and (self.folder / "cases" / known.page).exists()

    def _add_case(self, written: WrittenCase) -> CaseSummary:
        """Gives all that the case has numbered its place in the site."""
        environments = [self._place_environment(*each) for each in written.environments.items()]
        versions = [self._place_version(*each) for each in written.versions.items()]
        timers = [_place(self.state.timers, name) for name in written.timers]
        baselines = [_place(self.state.baselines, name) for name in written.baselines]
        self.times.append(renumber(written.times, {0: versions, 2: environments, 3: timers}))
        self.ratios.append(renumber(written.ratios, {0: versions, 2: environments, 3: baselines}))
        self.written += 1
        where = written.summary.where
        return replace(written.summary, where=None if where is None else environments[where])

    def _place_environment(self, fingerprint: str, facts: Mapping[str, str]) -> int:
        self.state.environments.setdefault(fingerprint, dict(facts))
        return self.environments.setdefault(fingerprint, len(self.environments))

    def _place_version(self, name: str, at: str) -> int:
        if at < self.state.versions.setdefault(name, at):
            self.state.versions[name] = at
        return self.versions.setdefault(name, len(self.versions))

    def _collect_cases(self, written: Mapping[str, CaseSummary]) -> None:
        """Collects the cases in the order of the store, including those of the previous build."""
        known = self.before.cases if self.before else {}
        for each in self.activity:
            self.state.cases[each.key] = written[each.key] if each.key in written else known[each.key]

    # ---- all cases ----------------------------------------------------------------------------------------------

    def _write_versions(self, workers: Workers[CaseWriter]) -> None:
        times = split_by_version(self.times, TIMES, len(self.versions))
        ratios = split_by_version(self.ratios, RATIOS, len(self.versions))
        known = self.before.versions if self.before else {}
        tasks = [
            VersionTask(name, Numbers(*new), name in known)
            for name, *new in zip(self.versions, times, ratios, strict=True)
            if name not in known or any(map(len, new))
        ]
        for _ in workers.map(CaseWriter.write_version, tasks):
            self.versions_written += 1

    def _write_lists(self) -> None:
        cases = list(self.state.cases.values())
        environments = [name_briefly(facts) for facts in self.state.environments.values()]
        self._write_page("index.html", "Benchmarks: what changed lately", overview(cases))
        for number, document in enumerate(lists_of_cases(cases, environments), 1):
            self.lists.add(name_list(number))
            self._write_page(name_list(number), "Benchmarks: all cases", document)
        self._write_if_changed("data/" + INDEX, render_index(self.state))
        below, scripts = comparing_placeholder(), ("data/" + INDEX,)
        self._write_page("compare.html", "Benchmarks: compare", comparing_page(), below, scripts)
        self._write_if_changed("feed.xml", render_feed(cases, self.state.store))

    def _write_page(
        self,
        name: str,
        title: str,
        document: Document,
        below: Markup = EMPTY,
        scripts: tuple[str, ...] = (),
    ) -> None:
        self._write_if_changed(name, render_page(title, (document,), frame("", name, below, scripts)))

    def _write_assets(self) -> None:
        for name in (*ASSETS, LICENCE):
            self._write_if_changed(f"assets/{name}", asset_text(name))
        for name in OWN_ASSETS:
            text = (files("benchax.reporting.site") / "assets" / name).read_text(encoding="utf-8")
            self._write_if_changed(f"assets/{name}", text)

    def _write_if_changed(self, name: str, text: str) -> None:
        file = self.folder / name
        with suppress(OSError, ValueError):
            # As `write_page` writes it.
            if file.read_bytes() == text.encode("utf-8", "backslashreplace"):
                return
        write_page(file, text)
        self.others += 1

    def _remove_old(self) -> None:
        """Files of a store, or of a time, that this one does not have."""
        wanted = {case.page for case in self.state.cases.values()}
        data = {INDEX, *map(file_of, self.state.versions)}
        for file in (self.folder / "cases").glob("*.html"):
            if file.name not in wanted:
                file.unlink(missing_ok=True)
        for file in (self.folder / "data").glob("*.js"):
            if file.name not in data:
                file.unlink(missing_ok=True)
        for file in self.folder.glob("cases-*.html"):
            if file.name not in self.lists:
                file.unlink(missing_ok=True)


def _choose_processes(tasks: Sequence[CaseTask]) -> int:
    """Returns one process per core, if there is enough work: starting one takes half a second."""
    lines = sum(PAGE + task.activity.rows + task.activity.comparisons for task in tasks)
    return max(1, min(count_cores(), len(tasks), lines // FEWEST))


def _place(names: list[str], name: str) -> int:
    """Returns the position of a name in a list, and appends the name if necessary."""
    if name not in names:
        names.append(name)
    return names.index(name)
