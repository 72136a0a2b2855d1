"""Writes a site from a store: only whole files, and only those that differ from what is in the folder. One process
writes at a time. `site.json` says what the site was made from, so that a build with nothing new ends at once.

A `CaseWriter` is the work of one process: it reads cases, writes their pages, and writes files of versions. It knows
nothing of other cases. It numbers environments, versions, timers and baselines in the order in which they occur in the
case; `_Publishing` knows their places in the whole site.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import signal
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from itertools import pairwise
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchax.comparing.history import History, history
from benchax.environment import count_cores
from benchax.errors import NotAvailable, UsageError
from benchax.grouping import group_by
from benchax.model import Comparison
from benchax.printable import show_line, spell_for_xml
from benchax.reporting.document import Document
from benchax.reporting.html import ASSETS, EMPTY, LONGEST_TITLE, Markup, asset_text, render_page, write_page
from benchax.reporting.site import pages
from benchax.reporting.site.pages import (
    VERDICTS,
    CaseSummary,
    CaseTimeline,
    Found,
    Numbering,
    SiteIndex,
    file_of,
    frame,
)
from benchax.store.comparisons import (
    CaseActivity,
    list_activity,
    read_comparisons,
    read_timeline,
)
from benchax.store.database import DatabaseStore
from benchax.store.file_lock import only_writer
from benchax.store.schema import Row

Worker = TypeVar("Worker")
T = TypeVar("T")
Result = TypeVar("Result")

_worker: Any = None
"""The worker of this process, if another process started it."""


@dataclass(frozen=True)
class Workers(Generic[Worker]):
    """Hands things to workers; see `open_workers`."""

    worker: Worker
    executor: Executor | None
    processes: int

    def map(self, work: Callable[[Worker, T], Result], items: Sequence[T]) -> Iterator[Result]:
        """Yields the result of `work(worker, item)` for each item, in order. Raises the exceptions that `work` raises.

        Args:
            work: a function of a module, or a method as its class has it.
        """
        if self.executor is None:
            yield from map(partial(work, self.worker), items)
            return
        # Eight per process, so that all have work until the end. Each round trip takes 0.2 ms.
        at_once = max(1, min(16, len(items) // (8 * self.processes)))
        try:
            yield from self.executor.map(partial(_run, work), items, chunksize=at_once)
        except BrokenProcessPool as error:
            problem = "a process that was writing pages has ended before its time"
            hint = "the system might have run out of memory: see `dmesg`; then try again"
            raise NotAvailable(problem, hint=hint) from error


@contextmanager
def open_workers(worker: Worker, processes: int) -> Generator[Workers[Worker]]:
    """Opens workers in this number of processes. If it is 1, or if no other process can start, the worker is in this
    process. The workers end when the context ends.

    Raises:
        NotAvailable: one of the processes was ended by the system.
    """
    executor = None
    # Some sandboxes have no /dev/shm, where semaphores live.
    with suppress(OSError, NotImplementedError, ImportError):
        executor = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (worker,)) if processes > 1 else None
    try:
        yield Workers(worker, executor, processes)
    finally:
        if executor is not None:
            executor.shutdown(cancel_futures=True)  # after an error or Ctrl-C, no further page is begun


def _begin(worker: object) -> None:
    global _worker
    # Ctrl-C reaches all processes of a terminal. The first one tells these what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = worker


def _end_with_parent() -> None:
    """Without it, processes of an executor whose parent was killed wait for work for ever (Python 3.11 to 3.13)."""
    if (parent := parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)


def _run(work: Callable[[Any, T], Result], item: T) -> Result:
    return work(_worker, item)


# ---- the feed -------------------------------------------------------------------------------------------------------


# The feed of regressions (Atom, RFC 4287), the newest first. Links are relative: the feed does not know its address.
#
# An entry keeps its id for as long as the change begins at the same commit.

MOST_ENTRIES = 50
ATOM = "http://www.w3.org/2005/Atom"
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
"""RFC 3339, which ISO 8601 is where it has a time and a zone."""


def render_feed(cases: Sequence[CaseSummary], store: str) -> str:
    """Args:
    store: digest of the place of the rows, which tells the feed from others.
    """
    listed = [each for each in pages.list_changes(cases) if not each[1].is_sign]
    found = [each for each in listed if each[1].is_worse]
    certainty = pages.describe_certainty(cases, [each for each in listed if each[1].is_recent])
    feed = ET.Element("feed", xmlns=ATOM)
    texts = {
        "id": f"urn:benchax:site:{store[:32]}",
        "title": "What got slower, or takes more",
        "subtitle": " ".join(certainty),
        "updated": _date(max((change.at for _, change in found), default=max(c.newest_at for c in cases))),
    }
    _add(feed, texts)
    _add(ET.SubElement(feed, "author"), {"name": "benchax"})
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
    summary = (
        f"{change.metric} against {change.baseline}: {change.size} ({change.sure})",
        f"the last before it is {change.last}",
        f"at that commit {change.there}" * bool(change.there),
        f"newest {change.newest}" * bool(change.newest),
    )
    texts = {
        "id": f"urn:benchax:change:{_digest(name)[:32]}",
        "title": f"{case.label}: {change.size} from {change.commit} on",
        "updated": _date(change.at),
        "summary": "; ".join(filter(None, summary)),
    }
    _add(entry, texts)
    ET.SubElement(entry, "link", rel="alternate", href=f"cases/{case.page}")


def _add(parent: ET.Element, texts: Mapping[str, str]) -> None:
    for tag, text in texts.items():
        ET.SubElement(parent, tag).text = spell_for_xml(show_line(text))


def _date(date: str) -> str:
    return date if DATE.fullmatch(date) else "1970-01-01T00:00:00Z"


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
    written: int = 0
    """Pages of cases."""
    versions: int = 0
    versions_written: int = 0
    others: int = 0
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
            return Published(folder, len(activity), versions=sum(name.startswith("data/") for name in known) - 1)
        # A stopped build leaves no state, so the next one checks all files.
        (folder / FILE).unlink(missing_ok=True)
        publishing = _Publishing(store, folder)
        done = publishing.write(activity)
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
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a zero byte in its name
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write a site to {str(folder)!r}: {why}", "a folder that can be written to") from error


class _Publishing:
    """One time."""

    def __init__(self, store: DatabaseStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.site = SiteIndex()
        self.environments, self.versions = Numbering(), Numbering()
        """Their places in the site."""
        self.times, self.ratios = list[Entries](), list[Entries]()
        self.files = set[str]()
        """All that belong to the site."""
        self.others = 0

    def write(self, activity: Sequence[CaseActivity]) -> Published:
        for name in (*ASSETS, LICENCE):
            self._write_file(f"assets/{name}", asset_text(name))
        for name in OWN_ASSETS:
            asset = files("benchax.reporting.site") / "assets" / name
            self._write_file(f"assets/{name}", asset.read_text(encoding="utf-8"))
        with open_workers(CaseWriter(self.store, self.folder), _choose_processes(activity)) as workers:
            written = sum(map(self._add_case, workers.map(CaseWriter.write_case, activity)))
            versions_written = self._write_versions(workers)
        self._write_lists()
        # Files of another store or time, which this one does not have.
        for pattern in ("cases/*.html", "data/*.js", "cases-*.html"):
            for file in self.folder.glob(pattern):
                if file.relative_to(self.folder).as_posix() not in self.files:
                    file.unlink(missing_ok=True)
        return Published(self.folder, len(activity), written, len(self.versions), versions_written, self.others)

    def _add_case(self, written: WrittenCase) -> bool:
        """Gives all that the case has numbered its place in the site. Returns whether its page is another one now."""
        summary, site = written.summary, self.site
        self.files.add(f"cases/{summary.page}")
        site.environments |= written.environments
        for name, at in written.versions.items():
            site.versions[name] = min(at, site.versions.get(name, at))
        environments = [self.environments[name] for name in written.environments]
        versions = [self.versions[name] for name in written.versions]
        timers = [site.timers[name] for name in written.timers]
        baselines = [site.baselines[name] for name in written.baselines]
        self.times.append(renumber(written.times, {0: versions, 2: environments, 3: timers}))
        self.ratios.append(renumber(written.ratios, {0: versions, 2: environments, 3: baselines}))
        site.cases.append(replace(summary, where=None if summary.where is None else environments[summary.where]))
        return written.is_changed

    def _write_versions(self, workers: Workers[CaseWriter]) -> int:
        """Returns how many files are others now."""
        self.files |= {f"data/{file_of(name)}" for name in self.versions}
        times = split_by_version(self.times, TIMES, len(self.versions))
        ratios = split_by_version(self.ratios, RATIOS, len(self.versions))
        return sum(workers.map(CaseWriter.write_version, list(zip(self.versions, times, ratios, strict=True))))

    def _write_lists(self) -> None:
        cases = self.site.cases
        environments = [pages.name_environment(facts) for facts in self.site.environments.values()]
        self._write_page("index.html", "Benchmarks: what changed lately", pages.overview(cases, environments))
        for number, document in enumerate(pages.lists_of_cases(cases, environments), 1):
            self._write_page(pages.name_list(number), "Benchmarks: all cases", document)
        index = f"data/{pages.INDEX}"
        self._write_file(index, pages.render_index(self.site))
        self._write_page("compare.html", "Benchmarks: compare", pages.COMPARING, pages.PLACEHOLDER, (index,))
        self._write_file("feed.xml", render_feed(cases, _digest(self.store.where)))

    def _write_page(
        self, name: str, title: str, document: Document, below: Markup = EMPTY, scripts: tuple[str, ...] = ()
    ) -> None:
        self._write_file(name, render_page(title, (document,), frame("", name, below, scripts)))

    def _write_file(self, name: str, text: str) -> None:
        self.files.add(name)
        self.others += write_changed(self.folder / name, text)


def _choose_processes(activity: Sequence[CaseActivity]) -> int:
    """Returns one process per core, if there is enough work: starting one takes half a second."""
    lines = sum(PAGE + each.rows + each.comparisons for each in activity)
    return max(1, min(count_cores(), len(activity), lines // FEWEST))


def write_changed(file: Path, text: str) -> bool:
    """Leaves a file as it is if it has this text already."""
    with suppress(OSError, ValueError):
        # As `write_page` writes it.
        if file.read_bytes() == text.encode("utf-8", "backslashreplace"):
            return False
    write_page(file, text)
    return True


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


# ---- the work of one process -------------------------------------------------------------------------------------

SLUG = re.compile("[^a-z0-9]+")
Entries = NDArray[np.float64]
"""One in each line: a store may have a million of them, and tuples would take five times as much."""
TIMES, RATIOS = 6, 7
"""The length of one entry: case, environment, timer, median, low, high; case, environment, baseline, verdict, ratio,
low, high. A value that is not a number is a position in a list of `SiteIndex`."""
NUMBERS = 3
"""The last ones of an entry are no positions."""
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


class CaseWriter:
    """Keeps what it has read of environments."""

    def __init__(self, store: DatabaseStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self._facts = dict[str, dict[str, str]]()

    def write_case(self, activity: CaseActivity) -> WrittenCase:
        rows, compared = read_timeline(self.store, activity), read_comparisons(self.store, activity)
        facts = self._describe_environments(rows, compared)
        found = CaseTimeline(activity.case, rows, _histories(compared), facts)
        # A readable part of the name, and a digest that makes it unique.
        slug = SLUG.sub("-", activity.case.name[:200].lower()).strip("-")[:40].strip("-")
        page = f"{slug}-{activity.key[:16]}.html".removeprefix("-")
        title = pages.shorten_label(activity.case.label)[:LONGEST_TITLE]
        text = render_page(title, pages.documents(found), frame("../"))
        is_changed = write_changed(self.folder / "cases" / page, text)
        environments = Numbering({fingerprint: place for place, fingerprint in enumerate(facts)})
        versions, timers, baselines = Numbering(), Numbering(), Numbering()
        first_seen = dict[str, str]()

        def number(name: str, at: str, fingerprint: str) -> tuple[int, ...]:
            """Returns what an entry begins with: version, case, and environment."""
            first_seen[name] = min(at, first_seen.get(name, at))
            return versions[name], activity.id, environments[fingerprint]

        times, ratios = list[Sequence[Any]](), list[Sequence[Any]]()
        for row in rows:
            where = number(pages.version_of_row(row), row.started_at, row.fingerprint)
            if row.median_s is not None:
                times.append((*where, timers[row.timer or ""], row.median_s, row.low_s, row.high_s))
        for c in compared:
            version, env = c.candidate, c.environment
            if version.commit and env is not None and c.metric == "run" and c.ratio is not None:
                where = number(pages.name_version(version.commit, version.is_dirty), c.compared_at, env.fingerprint)
                ratios.append((*where, baselines[c.baseline.label], VERDICTS.index(c.verdict), c.ratio, c.low, c.high))
        summary = pages.summarize(activity, found, page, environments)
        numbers = list_entries(times, TIMES), list_entries(ratios, RATIOS)
        return WrittenCase(summary, is_changed, facts, first_seen, list(timers), list(baselines), *numbers)

    def _describe_environments(self, rows: Sequence[Row], compared: Sequence[Comparison]) -> dict[str, dict[str, str]]:
        """Their facts by fingerprint, in the order in which they came."""
        for row in rows:
            if row.fingerprint not in self._facts:
                self._facts[row.fingerprint] = pages.describe_facts(self.store.get(row.id).environment)
        found = {row.fingerprint: self._facts[row.fingerprint] for row in rows}
        others = {c.environment.fingerprint: c.environment for c in compared if c.environment is not None}
        return found | {key: pages.describe_facts(env) for key, env in others.items() if key not in found}

    def write_version(self, numbers: tuple[str, Entries, Entries]) -> bool:
        """Writes the file of a version: its name, times, and ratios. Returns whether it is another one than before."""
        return write_changed(self.folder / "data" / file_of(numbers[0]), render_numbers(*numbers))


def _histories(compared: Sequence[Comparison]) -> list[History]:
    """One for each metric and baseline; that with the newest comparison last."""
    newest_first = group_by(reversed(compared), lambda c: (c.metric, c.baseline.label))
    return [history(series[::-1]) for series in reversed(newest_first.values())]


# ---- entries of many versions: before each is the place of its version -------------------------------------------


def list_entries(listed: Sequence[Sequence[Any]], width: int) -> Entries:
    """Makes entries from lists: each is a version, followed by as many numbers as `TIMES` or `RATIOS` states
    (`width`). None becomes NaN."""
    return np.array(listed, dtype=float).reshape(-1, 1 + width)


def renumber(entries: Entries, columns: Mapping[int, Sequence[int]]) -> Entries:
    """The entries with other numbers in some columns: each comes with the values that 0, 1, 2 … mean."""
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


def render_numbers(name: str, times: Entries, ratios: Entries) -> str:
    """The script: of each case in each environment the newest entry, in the order of cases."""
    newest_times = {tuple(entry[:2]): entry for entry in times.tolist()}
    newest_ratios = {tuple(entry[:3]): entry for entry in ratios.tolist()}
    document = f'{{"times":{_columns(newest_times, TIMES)},"ratios":{_columns(newest_ratios, RATIOS)}}}'
    # Like all texts, the name is ASCII, without anything that could end the script or a comment.
    return f"{CALL}{json.dumps(file_of(name))},{document});\n"


def _columns(entries: Mapping[Any, Sequence[float]], width: int) -> str:
    columns: Iterable[Sequence[float]] = (
        zip(*(entries[key] for key in sorted(entries)), strict=True) if entries else ((),) * width
    )
    texts = (
        [str(int(v)) if i < width - NUMBERS else f"{v:.{DIGITS}g}" if math.isfinite(v) else "null" for v in column]
        for i, column in enumerate(columns)
    )
    return "[" + ",".join(f"[{','.join(column)}]" for column in texts) + "]"
