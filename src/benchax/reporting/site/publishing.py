"""Writes a site from a store: only whole files, and only those that differ from what is in the folder. One process
writes at a time. `site.json` says what the site was made from, so that a build with nothing new ends at once.
"""

from __future__ import annotations

import hashlib
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from benchax.environment import count_cores
from benchax.errors import UsageError
from benchax.printable import show_line, spell_for_xml
from benchax.reporting.document import Document
from benchax.reporting.html import Markup
from benchax.reporting.pages.page import ASSETS, EMPTY, asset_text, render_page, write_page
from benchax.reporting.site.case_page import CaseSummary, file_of, name_briefly
from benchax.reporting.site.case_writer import (
    RATIOS,
    TIMES,
    CaseWriter,
    Entries,
    VersionNumbers,
    WrittenCase,
    renumber,
    split_by_version,
    write_changed,
)
from benchax.reporting.site.lists import (
    INDEX,
    Found,
    SiteIndex,
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
from benchax.store.comparisons import CaseActivity, list_activity
from benchax.store.database import DatabaseStore
from benchax.store.file_lock import only_writer

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
FILE = "site.json"
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
    made_from = _identify(store, activity)
    with _own(folder), store.held_open():
        if known := _find_files(folder, made_from):
            versions = sum(name.startswith("data/") for name in known) - 1
            return Published(folder, len(activity), 0, versions, 0, 0)
        # A build that is stopped leaves no state, so that the next one looks at all files.
        (folder / FILE).unlink(missing_ok=True)
        publishing = _Publishing(store, folder, activity)
        done = publishing.write()
        write_page(folder / FILE, json.dumps({"made_from": made_from, "files": sorted(publishing.files)}) + "\n")
        return done


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
        self.site = SiteIndex()
        self.environments, self.versions = dict[str, int](), dict[str, int]()
        """Their places in the site."""
        self.times, self.ratios = list[Entries](), list[Entries]()
        self.files = set[str]()
        """All that belong to the site."""
        self.written = self.versions_written = self.others = 0

    def write(self) -> Published:
        self._write_assets()
        with open_workers(CaseWriter(self.store, self.folder), _choose_processes(self.activity)) as workers:
            for case in workers.map(CaseWriter.write_case, self.activity):
                self._add_case(case)
            self._write_versions(workers)
        self._write_lists()
        self._remove_old()
        return Published(
            self.folder, len(self.activity), self.written, len(self.versions), self.versions_written, self.others
        )

    def _add_case(self, written: WrittenCase) -> None:
        """Gives all that the case has numbered its place in the site."""
        self.files.add(f"cases/{written.summary.page}")
        self.written += written.is_changed
        self.site.environments |= written.environments
        for name, at in written.versions.items():
            self.site.versions[name] = min(at, self.site.versions.get(name, at))
        environments = [_place(self.environments, name) for name in written.environments]
        versions = [_place(self.versions, name) for name in written.versions]
        timers = [_place(self.site.timers, name) for name in written.timers]
        baselines = [_place(self.site.baselines, name) for name in written.baselines]
        self.times.append(renumber(written.times, {0: versions, 2: environments, 3: timers}))
        self.ratios.append(renumber(written.ratios, {0: versions, 2: environments, 3: baselines}))
        where = written.summary.where
        self.site.cases.append(replace(written.summary, where=None if where is None else environments[where]))

    def _write_versions(self, workers: Workers[CaseWriter]) -> None:
        times = split_by_version(self.times, TIMES, len(self.versions))
        ratios = split_by_version(self.ratios, RATIOS, len(self.versions))
        numbers = list(map(VersionNumbers, self.versions, times, ratios))
        self.versions_written = sum(workers.map(CaseWriter.write_version, numbers))
        self.files |= {f"data/{file_of(name)}" for name in self.versions}

    def _write_lists(self) -> None:
        cases = self.site.cases
        environments = [name_briefly(facts) for facts in self.site.environments.values()]
        self._write_page("index.html", "Benchmarks: what changed lately", overview(cases, environments))
        for number, document in enumerate(lists_of_cases(cases, environments), 1):
            self._write_page(name_list(number), "Benchmarks: all cases", document)
        self._write_file("data/" + INDEX, render_index(self.site))
        below, scripts = comparing_placeholder(), ("data/" + INDEX,)
        self._write_page("compare.html", "Benchmarks: compare", comparing_page(), below, scripts)
        self._write_file("feed.xml", render_feed(cases, _digest(self.store.where)))

    def _write_page(
        self,
        name: str,
        title: str,
        document: Document,
        below: Markup = EMPTY,
        scripts: tuple[str, ...] = (),
    ) -> None:
        self._write_file(name, render_page(title, (document,), frame("", name, below, scripts)))

    def _write_assets(self) -> None:
        for name in (*ASSETS, LICENCE):
            self._write_file(f"assets/{name}", asset_text(name))
        for name in OWN_ASSETS:
            text = (files("benchax.reporting.site") / "assets" / name).read_text(encoding="utf-8")
            self._write_file(f"assets/{name}", text)

    def _write_file(self, name: str, text: str) -> None:
        self.files.add(name)
        self.others += write_changed(self.folder / name, text)

    def _remove_old(self) -> None:
        """Files of a store, or of a time, that this one does not have."""
        for pattern in ("cases/*.html", "data/*.js", "cases-*.html"):
            for file in self.folder.glob(pattern):
                if file.relative_to(self.folder).as_posix() not in self.files:
                    file.unlink(missing_ok=True)


def _choose_processes(activity: Sequence[CaseActivity]) -> int:
    """Returns one process per core, if there is enough work: starting one takes half a second."""
    lines = sum(PAGE + each.rows + each.comparisons for each in activity)
    return max(1, min(count_cores(), len(activity), lines // FEWEST))


def _place(places: dict[str, int], name: str) -> int:
    """The place of a name, which is the next one if it has none yet."""
    return places.setdefault(name, len(places))


# ---- what a site was made from: if it is the same, nothing is to be done -----------------------------------------


def _identify(store: DatabaseStore, activity: Sequence[CaseActivity]) -> str:
    """A digest of the store, its content, and the code that makes pages: two checkouts of one version can make
    different pages."""
    found = hashlib.sha256(repr((_digest(store.where), [(each.key, each.seen) for each in activity])).encode())
    for file in sorted(Path(__file__).parents[1].rglob("*")):
        if file.suffix in (".py", ".js", ".css", ".html"):
            found.update(file.read_bytes())
    return found.hexdigest()


def _digest(where: str) -> str:
    """Hides the place of a store: a site is for others to see, and the place can hold a password."""
    return hashlib.sha256(where.encode("utf-8", "surrogatepass")).hexdigest()


def _find_files(folder: Path, made_from: str) -> list[str]:
    """All files of a site that was made from just this; none if one of them is missing."""
    try:
        state = json.loads((folder / FILE).read_text(encoding="ascii"))
        is_same = state["made_from"] == made_from and all((folder / name).exists() for name in state["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return state["files"] if is_same else []
