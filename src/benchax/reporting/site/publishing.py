"""Writes a site from a store: whole files only, and of the pages of cases those whose rows have changed.

What the last time has seen lies in the folder (`state.py`) and is written last, so that a time that was stopped is made
good by the next one. One process writes at a time.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from benchax.comparing.history import History, history
from benchax.errors import UsageError
from benchax.model import Comparison
from benchax.reporting.document import Document
from benchax.reporting.markup import Markup, element
from benchax.reporting.pages.page import ASSETS, Shared, asset_text, render_page
from benchax.reporting.pages.saving import LONGEST_TITLE, write_page
from benchax.reporting.site import case_page, comparing_page
from benchax.reporting.site.case_page import CaseTimeline
from benchax.reporting.site.environments import describe_facts, name_briefly
from benchax.reporting.site.feed import render_feed
from benchax.reporting.site.lists import lists_of_cases, name_list, overview
from benchax.reporting.site.state import FILE, CaseSummary, SiteState, new_state, read_state, render_state
from benchax.reporting.site.summarizing import shorten_label, summarize
from benchax.reporting.site.versions import (
    VERDICTS,
    Numbers,
    file_of,
    number_or_nan,
    read_numbers,
    render_numbers,
    version_of_comparison,
    version_of_row,
)
from benchax.store.database import DatabaseStore
from benchax.store.file_lock import only_writer
from benchax.store.lean_reader import LeanReader
from benchax.store.timelines import (
    CaseActivity,
    TimelineRow,
    list_activity,
    read_comparisons,
    read_environment,
    read_timeline,
)

LICENCE = "echarts-LICENSES.txt"
OWN_ASSETS = ("site.css", "site.js")
LOCK = ".site-lock"
PAGES = (("index.html", "Changes"), ("cases.html", "All cases"), ("compare.html", "Compare"), ("feed.xml", "Feed"))
SLUG = re.compile("[^a-z0-9]+")


@dataclass(frozen=True)
class Published:
    """What was written; the rest was there already."""

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
    with _own(folder):
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
        self.reader = LeanReader()
        self.before = self._state_before()
        fresh = new_state(store.where)
        # What stands in files of versions by its place keeps that place.
        self.state = replace(self.before, cases={}, versions=dict(self.before.versions)) if self.before else fresh
        self.numbers: dict[str, Numbers] = {}
        self.places = {name: i for i, name in enumerate(self.state.environments)}
        self.lists = set[str]()
        self.written = self.versions_written = self.others = 0

    def _state_before(self) -> SiteState | None:
        """None where everything is to be written anew."""
        found, fresh = read_state(self.folder), new_state(self.store.where)
        if found is None or (found.store, found.benchax, found.format) != (fresh.store, fresh.benchax, fresh.format):
            return None
        is_same = all(found.cases[a.key].id == a.id for a in self.activity if a.key in found.cases)
        is_whole = all((self.folder / "data" / file_of(name)).exists() for name in found.versions)
        return found if is_same and is_whole else None

    def write(self) -> Published:
        self._write_assets()
        for each in self.activity:
            known = self.before.cases.get(each.key) if self.before else None
            is_known = known is not None and known.seen == each.seen and (self.folder / "cases" / known.page).exists()
            self.state.cases[each.key] = known if known and is_known else self._write_case(each, known)
        self._write_versions()
        self._write_lists()
        self._remove_old()
        write_page(self.folder / FILE, render_state(self.state))
        return Published(
            self.folder, len(self.activity), self.written, len(self.state.versions), self.versions_written, self.others
        )

    # ---- a case -------------------------------------------------------------------------------------------------

    def _write_case(self, activity: CaseActivity, known: CaseSummary | None) -> CaseSummary:
        rows = read_timeline(self.store, activity)
        compared = read_comparisons(self.store, activity, self.reader)
        self._learn_environments(rows, compared)
        histories = _histories(compared)
        self._gather(activity, rows, compared, known)
        facts = {row.fingerprint: self.state.environments[row.fingerprint] for row in rows}
        found = CaseTimeline(activity.case, rows, histories, facts)
        page = known.page if known else _name_page(activity)
        shared = Shared("../assets", _navigation("../"), styles=("../assets/site.css",), scripts=("../assets/site.js",))
        title = shorten_label(activity.case)[:LONGEST_TITLE]
        write_page(self.folder / "cases" / page, render_page(title, case_page.documents(found), shared))
        self.written += 1
        return summarize(activity, found, page, self.places)

    def _learn_environments(self, rows: Iterable[TimelineRow], compared: Iterable[Comparison]) -> None:
        for row in rows:
            if row.fingerprint not in self.places:
                self._add_environment(row.fingerprint, describe_facts(read_environment(self.store, row)))
        for c in compared:
            if c.environment is not None and c.environment.fingerprint not in self.places:
                self._add_environment(c.environment.fingerprint, describe_facts(c.environment))

    def _add_environment(self, fingerprint: str, facts: dict[str, str]) -> None:
        self.places[fingerprint] = len(self.places)
        self.state.environments[fingerprint] = facts

    def _gather(
        self,
        activity: CaseActivity,
        rows: Sequence[TimelineRow],
        compared: Sequence[Comparison],
        known: CaseSummary | None,
    ) -> None:
        """The numbers that files of versions do not have yet."""
        new_rows, new_compared = _select_new(activity, rows, compared, known)
        for row in new_rows:
            version = version_of_row(row)
            self._see(version, row.started_at)
            if row.median_s is not None:
                timer = _place(self.state.timers, row.timer or "")
                where = (activity.id, self.places[row.fingerprint], timer)
                self._numbers_of(version).times.extend(
                    (*where, row.median_s, number_or_nan(row.low_s), number_or_nan(row.high_s))
                )
        for c in new_compared:
            version = version_of_comparison(c)
            if version is None or c.metric != "run" or c.ratio is None or c.environment is None:
                continue
            self._see(version, c.compared_at)
            baseline = _place(self.state.baselines, c.baseline.label)
            where = (activity.id, self.places[c.environment.fingerprint], baseline, VERDICTS.index(c.verdict))
            ends = (c.ratio, number_or_nan(c.low), number_or_nan(c.high))
            self._numbers_of(version).ratios.extend((*where, *ends))

    def _see(self, version: str, at: str) -> None:
        if at < self.state.versions.setdefault(version, at):
            self.state.versions[version] = at

    def _numbers_of(self, version: str) -> Numbers:
        found = self.numbers.get(version)
        if found is None:  # setdefault would make one each time
            found = self.numbers[version] = Numbers()
        return found

    # ---- all cases ----------------------------------------------------------------------------------------------

    def _write_versions(self) -> None:
        for name in self.state.versions:
            file = self.folder / "data" / file_of(name)
            new = self.numbers.pop(name, None)
            if new is None and file.exists():
                continue
            found = self._numbers_before(file) if self.before and name in self.before.versions else Numbers()
            if new is not None:
                found.times.extend(new.times)
                found.ratios.extend(new.ratios)
            write_page(file, render_numbers(name, found))
            self.versions_written += 1

    def _numbers_before(self, file: Path) -> Numbers:
        try:
            return read_numbers(file)
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            problem = f"{str(file)!r} is not as benchax wrote it: {error}"
            hint = f"remove {self.folder / FILE}: then all of it is written anew"
            raise UsageError(problem, "a file of a site", hint) from error

    def _write_lists(self) -> None:
        cases = list(self.state.cases.values())
        environments = [name_briefly(facts) for facts in self.state.environments.values()]
        self._write_page("index.html", "Benchmarks: what changed lately", overview(cases))
        for number, document in enumerate(lists_of_cases(cases, environments), 1):
            self.lists.add(name_list(number))
            self._write_page(name_list(number), "Benchmarks: all cases", document)
        self._write_if_changed("data/" + comparing_page.INDEX, comparing_page.render_index(self.state))
        below, scripts = comparing_page.placeholder(), ("assets/site.js", "data/" + comparing_page.INDEX)
        self._write_page("compare.html", "Benchmarks: compare", comparing_page.document(), below, scripts)
        self._write_if_changed("feed.xml", render_feed(cases, self.state.store))

    def _write_page(
        self,
        name: str,
        title: str,
        document: Document,
        below: Markup = Markup(""),  # noqa: B008
        scripts: tuple[str, ...] = ("assets/site.js",),
    ) -> None:
        shared = Shared("assets", _navigation("", name), below, ("assets/site.css",), scripts)
        self._write_if_changed(name, render_page(title, (document,), shared))

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
        data = {comparing_page.INDEX, *map(file_of, self.state.versions)}
        for file in (self.folder / "cases").glob("*.html"):
            if file.name not in wanted:
                file.unlink(missing_ok=True)
        for file in (self.folder / "data").glob("*.js"):
            if file.name not in data:
                file.unlink(missing_ok=True)
        for file in self.folder.glob("cases-*.html"):
            if file.name not in self.lists:
                file.unlink(missing_ok=True)


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
    """What came since; all of it where a server has let an older number in behind a newer one."""
    if known is None:
        return rows, compared
    new = [row for row in rows if row.id > known.seen[1]]
    return new if len(new) == activity.rows - known.seen[0] else rows, compared[known.seen[2] :]


def _place(names: list[str], name: str) -> int:
    """Where it stands in a list, at whose end it is added if need be."""
    if name not in names:
        names.append(name)
    return names.index(name)


def _name_page(activity: CaseActivity) -> str:
    """A part of its name to read, and a digest that tells it from all others."""
    slug = SLUG.sub("-", activity.case.name[:200].lower()).strip("-")[:40].strip("-")
    return f"{slug}-{activity.key[:16]}.html" if slug else f"{activity.key[:16]}.html"


def _navigation(up: str, here: str = "") -> Markup:
    links = (element("a", text, href=up + file, aria_current="page" if file == here else "") for file, text in PAGES)
    return element("nav", *links, aria_label="Site", css_class="site")
