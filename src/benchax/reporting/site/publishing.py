"""Writes a site from a store: only whole files, and only those that differ from what is in the folder. One process
writes at a time. `site.json` says what the site was made from, so that a build with nothing new ends at once.

A `CaseWriter` is the work of one process: it reads cases and writes their pages. It knows nothing of other cases, and
returns what files of versions and lists have of the case.
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
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

from benchax.comparing.history import History, history
from benchax.environment import count_cores
from benchax.errors import NotAvailable, UsageError
from benchax.grouping import group_by
from benchax.model import Comparison
from benchax.printable import show_line, spell_for_xml
from benchax.reporting.document import Document
from benchax.reporting.html import ASSETS, LONGEST_TITLE, asset_text, render_page, write_page
from benchax.reporting.site import pages
from benchax.reporting.site.pages import CaseSummary, CaseTimeline, Found, file_of, frame
from benchax.store.comparisons import (
    CaseActivity,
    list_activity,
    read_comparisons,
    read_timeline,
)
from benchax.store.database import DatabaseStore
from benchax.store.schema import Row
from benchax.whole_files import only_writer

T = TypeVar("T")
R = TypeVar("R")

_work: Any = None
"""The work of this process, if another process started it."""


def map_in_processes(work: Callable[[T], R], items: Sequence[T], processes: int) -> Generator[R]:
    """Yields the result of `work(item)` for each item, in order, from this number of processes. If it is 1, or if no
    other process can start, this process does the work. The others end with the generator.

    Raises:
        NotAvailable: one of the processes was ended by the system. Also raises the exceptions that `work` raises.
    """
    executor = None
    # Some sandboxes have no /dev/shm, where semaphores live.
    with suppress(OSError, NotImplementedError, ImportError):
        executor = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (work,)) if processes > 1 else None
    if executor is None:
        yield from map(work, items)
        return
    # Eight per process, so that all have work until the end. Each round trip takes 0.2 ms.
    at_once = max(1, min(16, len(items) // (8 * processes)))
    try:
        yield from executor.map(_run, items, chunksize=at_once)
    except BrokenProcessPool as error:
        problem = "a process that was writing pages has ended before its time"
        hint = "the system might have run out of memory: see `dmesg`; then try again"
        raise NotAvailable(problem, hint=hint) from error
    finally:
        executor.shutdown(cancel_futures=True)  # after an error or Ctrl-C, no further page is begun


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    # Ctrl-C reaches all processes of a terminal. The first one tells these what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work = work


def _end_with_parent() -> None:
    """Without it, processes of an executor whose parent was killed wait for work for ever (Python 3.11 to 3.13)."""
    if (parent := parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)


def _run(item: Any) -> Any:
    return _work(item)


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
        self.cases = list[CaseSummary]()
        self.environments = dict[str, Mapping[str, str]]()
        """Facts as texts, by fingerprint."""
        self.versions = dict[str, str]()
        """Name of a version → when it was measured first."""
        self.times, self.ratios = dict[str, dict[str, list[str]]](), dict[str, dict[str, list[str]]]()
        """Entries by version and fingerprint, as JSON: a store may have a million, and lists take twice as much."""
        self.files = set[str]()
        """All that belong to the site."""

    def write(self, activity: Sequence[CaseActivity]) -> Published:
        processes, writer = _choose_processes(activity), CaseWriter(self.store, self.folder)
        with closing(map_in_processes(writer.write_case, activity, processes)) as cases:
            written = sum(map(self._add_case, cases))
        versions_written = sum(map(self._write_version, self.versions))
        others = sum(self._write_file(name, text) for name, text in self._make_others())
        # Files of another store or time, which this one does not have.
        for pattern in ("cases/*.html", "data/*.js", "cases-*.html"):
            for file in self.folder.glob(pattern):
                if file.relative_to(self.folder).as_posix() not in self.files:
                    file.unlink(missing_ok=True)
        return Published(self.folder, len(activity), written, len(self.versions), versions_written, others)

    def _add_case(self, written: WrittenCase) -> bool:
        """Returns whether its page is another one now."""
        self.files.add(f"cases/{written.summary.page}")
        self.cases.append(written.summary)
        self.environments |= written.environments
        for name, at in written.versions.items():
            self.versions[name] = min(at, self.versions.get(name, at))
        for all_entries, entries in ((self.times, written.times), (self.ratios, written.ratios)):
            for (version, env, *_), entry in entries.items():
                all_entries.setdefault(version, {}).setdefault(env, []).append(entry)
        return written.is_changed

    def _write_version(self, name: str) -> bool:
        """Writes the file of a version: its times and ratios. Returns whether it is another one than before."""
        times, ratios = (_join_entries(entries.get(name, {})) for entries in (self.times, self.ratios))
        file = file_of(name)
        return self._write_file(f"data/{file}", f'{CALL}"{file}",{{"times":{times},"ratios":{ratios}}});\n')

    def _make_others(self) -> Iterator[tuple[str, str]]:
        """Yields the names and texts of the files that are about no single case or version."""
        yield from ((f"assets/{name}", asset_text(name)) for name in (*ASSETS, pages.SCRIPT, LICENCE))
        yield "index.html", _render_page("index.html", "Benchmarks: what changed lately", pages.overview(self.cases))
        for number, document in enumerate(pages.lists_of_cases(self.cases), 1):
            name = pages.name_list(number)
            yield name, _render_page(name, "Benchmarks: all cases", document)
        yield f"data/{pages.INDEX}", pages.render_index(self.cases, self.environments, self.versions)
        shared = frame("", "compare.html", pages.PLACEHOLDER, (f"data/{pages.INDEX}",))
        yield "compare.html", render_page("Benchmarks: compare", (pages.COMPARING,), shared)
        yield "feed.xml", render_feed(self.cases, _digest(self.store.where))

    def _write_file(self, name: str, text: str) -> bool:
        self.files.add(name)
        return write_changed(self.folder / name, text)


def _join_entries(by_environment: Mapping[str, Sequence[str]]) -> str:
    listed = (f"{json.dumps(env)}:[{','.join(entries)}]" for env, entries in by_environment.items())
    return f"{{{','.join(listed)}}}"


def _render_page(name: str, title: str, document: Document) -> str:
    return render_page(title, (document,), frame("", name))


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
CALL = "benchaxVersion("
DIGITS = 6
quote = cache(json.dumps)
"""Writes a text as JSON. The same few texts occur in all entries."""


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
    times: Mapping[tuple[str, ...], str]
    """The newest entry of each version in each environment: case, timer, median, low, high."""
    ratios: Mapping[tuple[str, ...], str]
    """The same for each baseline: case, baseline, verdict, ratio, low, high."""


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
        seen = [(pages.version_of_row(row), row.started_at) for row in rows]
        times, ratios = dict[tuple[str, ...], str](), dict[tuple[str, ...], str]()
        for row in rows:
            if row.median_s is not None:
                words, numbers = (row.timer or "",), (row.median_s, row.low_s, row.high_s)
                times[pages.version_of_row(row), row.fingerprint] = encode_entry(activity.id, words, numbers)
        for c in compared:
            version, env = c.candidate, c.environment
            if version.commit and env is not None and c.metric == "run" and c.ratio is not None:
                name = pages.name_version(version.commit, version.is_dirty)
                seen.append((name, c.compared_at))
                words, numbers = (c.baseline.label, c.verdict), (c.ratio, c.low, c.high)
                ratios[name, env.fingerprint, c.baseline.label] = encode_entry(activity.id, words, numbers)
        first_seen = {name: min(at for _, at in each) for name, each in group_by(seen, lambda one: one[0]).items()}
        return WrittenCase(pages.summarize(activity, found, page), is_changed, facts, first_seen, times, ratios)

    def _describe_environments(self, rows: Sequence[Row], compared: Sequence[Comparison]) -> dict[str, dict[str, str]]:
        """Their facts by fingerprint, in the order in which they came."""
        for row in rows:
            if row.fingerprint not in self._facts:
                self._facts[row.fingerprint] = pages.describe_facts(self.store.get(row.id).environment)
        found = {row.fingerprint: self._facts[row.fingerprint] for row in rows}
        others = {c.environment.fingerprint: c.environment for c in compared if c.environment is not None}
        return found | {key: pages.describe_facts(env) for key, env in others.items() if key not in found}


def encode_entry(case: int, words: Iterable[str], numbers: Iterable[float | None]) -> str:
    """As JSON. All texts are ASCII, without anything that could end the script or a comment."""
    known = (f"{v:.{DIGITS}g}" if v is not None and math.isfinite(v) else "null" for v in numbers)
    return f"[{','.join((str(case), *map(quote, words), *known))}]"


def _histories(compared: Sequence[Comparison]) -> list[History]:
    """One for each metric and baseline; that with the newest comparison last."""
    newest_first = group_by(reversed(compared), lambda c: (c.metric, c.baseline.label))
    return [history(series[::-1]) for series in reversed(newest_first.values())]
