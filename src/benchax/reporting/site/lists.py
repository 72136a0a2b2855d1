"""The lists of all cases: recent changes, their certainty, and the current state of each case."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchax.comparing.ranking import Comparisons
from benchax.model import Comparison
from benchax.reporting.comparisons import chart, interval, style, verdict
from benchax.reporting.document import Block, Document, Heading, Paragraph, Style, Table, TableCell, TableColumn
from benchax.reporting.html import Markup, element
from benchax.reporting.pages.page import EMPTY, Shared
from benchax.reporting.site.case_page import (
    RECENT,
    VERDICTS,
    CaseSummary,
    FoundChange,
    file_of,
    name_environment,
    shorten_version,
    split_common,
)
from benchax.reporting.tables import CASE, COMMIT, VERDICT, WHEN, describe_date
from benchax.stats.changepoints import FALSE_ALARMS, LEAST
from benchax.units import number, percent, plural

MOST_CHANGES = 300
"""In a table."""
MOST_NEWEST = 20
"""Cases on the first page."""
CASES_ON_A_PAGE = 500
CHANGE = TableColumn("change", "words", 12)
NOTHING_COMPARED = (
    "No case was compared with a baseline yet, so nothing is judged. Times of two sessions differ by 30 % and more for "
    "reasons that are not in the code; benchax compare measures both versions side by side."
)

Found = tuple[CaseSummary, FoundChange]


def overview(cases: Sequence[CaseSummary], environments: Sequence[str]) -> Document:
    """Lists the recent changes, the newest first, then the newest times and verdicts, then older changes.

    Args:
        environments: their names, by place.
    """
    ordered = sorted(cases, key=lambda case: case.newest_at, reverse=True)
    below = (f"{plural(len(cases), 'case')} · newest row {describe_date(ordered[0].newest_at)} UTC",)
    blocks: list[Block] = [Heading("What changed lately", 1, below)]
    newest = _describe_newest(ordered[:MOST_NEWEST], environments)
    if not any(case.newest for case in cases):
        return Document((*blocks, Paragraph(NOTHING_COMPARED, "warning"), *newest, *_describe_failures(cases)))
    found = list_changes(cases)
    recent = [each for each in found if each[1].is_recent and not each[1].is_sign]
    blocks += [Paragraph(text) for text in describe_certainty(cases, recent)]
    blocks += _section("Slower, or more of it", [each for each in recent if each[1].is_worse])
    blocks += _section("Faster, or less of it", [each for each in recent if not each[1].is_worse])
    blocks += _section("First signs", [each for each in found if each[1].is_sign])
    blocks += newest
    blocks += _section("Before that", [each for each in found if not each[1].is_recent])
    return Document((*blocks, *_describe_failures(cases)))


def _describe_newest(cases: Sequence[CaseSummary], environments: Sequence[str]) -> list[Block]:
    runs = tuple(case.newest for case in cases if case.newest and case.newest.metric == "run")
    picture = [chart(Comparisons(runs))] if runs else []
    return [Heading("Newest times and verdicts"), *picture, _tabulate_cases(cases, environments)]


def list_changes(cases: Iterable[CaseSummary]) -> list[Found]:
    """The newest first."""
    found = [(case, change) for case in cases for change in case.changes]
    return sorted(found, key=lambda each: (each[1].at, each[0].label), reverse=True)


def describe_certainty(cases: Iterable[CaseSummary], recent: Sequence[Found]) -> Iterator[str]:
    """How many changes were found among how many comparisons, and how many of them are to be expected by chance."""
    looks = sum(case.looks for case in cases)
    judged = [change for _, change in recent if change.sure.startswith("p ")]
    yield (
        f"{plural(len(recent), 'change')} among the newest {RECENT} comparisons of each case with each baseline. "
        "Each is judged by itself, by Student's t test on the ratios before and after it; its interval is that of the "
        "comparison."
    )
    if looks:
        low, high = (share * looks for share in FALSE_ALARMS)
        yield (
            f"How sure: in unchanged code, {percent(FALSE_ALARMS[0])} to {percent(FALSE_ALARMS[1])} of comparisons "
            "begin a false change (for ratios that scatter by 1.5 % and by 3 %). Among "
            f"{plural(looks, 'comparison')} with noise, expect {_expected(low)} to {_expected(high)} by chance; "
            f"{len(judged)} were found. More comparisons can withdraw a change, or move it by a commit."
        )
    else:
        yield f"A change takes {LEAST} comparisons on either side of it: no case has enough yet, or all were counted."


def _expected(number_of: float) -> str:
    return number(number_of, 2) if number_of < 10 else str(math.ceil(number_of))


def _section(title: str, found: Sequence[Found]) -> list[Block]:
    if not found:
        return []
    more = (
        f"the newest {MOST_CHANGES} of {len(found)}; the pages of cases have all" if len(found) > MOST_CHANGES else ""
    )
    columns = (
        WHEN,
        CASE,
        TableColumn("of", "words"),
        CHANGE,
        COMMIT,
        TableColumn("last before it", "words"),
        TableColumn("at that commit"),
        TableColumn("newest"),
        TableColumn("sure", "words"),
    )
    rows = tuple(_line(case, change) for case, change in found[:MOST_CHANGES])
    blocks: list[Block] = [Heading(title), Table(columns, rows, more)]
    return blocks


def _line(case: CaseSummary, change: FoundChange) -> tuple[TableCell, ...]:
    look: Style = "bad" if change.is_worse else "good"
    of = f"{change.metric} against {change.baseline}"
    plain = (change.commit, change.last, change.there, change.newest, change.sure)
    return (
        TableCell(describe_date(change.at)),
        TableCell(case.label, link=f"cases/{case.page}"),
        TableCell(of),
        TableCell(change.size, "warning" if change.is_sign else look),
        *map(TableCell, plain),
    )


def _describe_failures(cases: Sequence[CaseSummary]) -> tuple[Block, ...]:
    failed = [case for case in cases if case.status not in ("", "ok")]
    if not failed:
        return ()
    rows = tuple(
        (
            TableCell(case.label, link=f"cases/{case.page}"),
            TableCell(case.status, "bad"),
            TableCell(describe_date(case.newest_at)),
        )
        for case in failed
    )
    more = f"the first {MOST_CHANGES} of {len(failed)}" if len(failed) > MOST_CHANGES else ""
    columns = (CASE, TableColumn("", "words"), WHEN)
    return Heading("Without a time in their newest row"), Table(columns, rows[:MOST_CHANGES], more)


# ---- all cases --------------------------------------------------------------------------------------------------


def name_list(page: int) -> str:
    """cases.html, cases-2.html: counted from 1."""
    return "cases.html" if page == 1 else f"cases-{page}.html"


def lists_of_cases(cases: Sequence[CaseSummary], environments: Sequence[str]) -> list[Document]:
    """Returns pages with a fixed number of cases each, by their labels.

    Args:
        environments: their names, by place.
    """
    ordered = sorted(cases, key=lambda case: (case.label, case.page))
    chunks = [ordered[i : i + CASES_ON_A_PAGE] for i in range(0, len(ordered), CASES_ON_A_PAGE)]
    return [_list(chunk, environments, page, chunks) for page, chunk in enumerate(chunks, 1)]


def _list(
    cases: Sequence[CaseSummary], environments: Sequence[str], page: int, pages: Sequence[Sequence[CaseSummary]]
) -> Document:
    total = plural(sum(map(len, pages)), "case")
    below = (f"page {page} of {len(pages)}: {len(cases)} of {total}" if len(pages) > 1 else total,)
    listed = _tabulate_cases(cases, environments)
    return Document((Heading("All cases", 1, below), listed, *_link_pages(page, pages)))


def _tabulate_cases(cases: Sequence[CaseSummary], environments: Sequence[str]) -> Table:
    columns = (
        CASE, WHEN, COMMIT, TableColumn("time per call (95 %)"), TableColumn("where", "words"),
        TableColumn("history of the ratio", "words"), TableColumn("newest ratio"), VERDICT,
    )  # fmt: skip
    return Table(columns, tuple(_case_line(case, environments) for case in cases)).without_empty_columns({0})


def _link_pages(page: int, pages: Sequence[Sequence[CaseSummary]]) -> tuple[Block, ...]:
    """The other pages, each with the first and the last case on it."""
    links = tuple(
        (TableCell(f"page {n}", link=name_list(n)), TableCell(cases[0].label), TableCell(cases[-1].label))
        for n, cases in enumerate(pages, 1)
        if n != page
    )
    columns = (TableColumn("", "words"), TableColumn("from", "words"), TableColumn("to", "words"))
    return (Heading("Other pages"), Table(columns, links)) if links else ()


def _case_line(case: CaseSummary, environments: Sequence[str]) -> tuple[TableCell, ...]:
    where = "" if case.where is None else environments[case.where]
    ratio, judged = (interval(case.newest), _judge(case.newest)) if case.newest else ("", TableCell(""))
    plain = (describe_date(case.newest_at), case.version, case.time, where, case.bars, ratio)
    return TableCell(case.label, link=f"cases/{case.page}"), *map(TableCell, plain), judged


def _judge(c: Comparison) -> TableCell:
    return TableCell(verdict(c), style(c))


INDEX = "index.js"
NOTE = (
    "Times are those of their own sessions, which differ by 30 % and more for reasons that are not in the code. So the "
    "ratio of two medians is not judged here: benchax compare measures both side by side. Ratios to a baseline were "
    "taken that way, and their verdicts are those of the comparisons."
)


def comparing_page() -> Document:
    return Document((Heading("Compare two versions, machines or JAX versions", 1), Paragraph(NOTE, "faint")))


def comparing_placeholder() -> Markup:
    return element(
        "section", element("p", "Choosing what to compare needs JavaScript.", css_class="faint"), id="versions"
    )


@dataclass
class SiteIndex:
    """The names that all pages share. Files of versions name an environment, a baseline or a timer by its place."""

    cases: list[CaseSummary] = field(default_factory=list[CaseSummary])
    environments: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """By fingerprint, in the order in which they came: facts as texts."""
    baselines: dict[str, int] = field(default_factory=dict[str, int])
    timers: dict[str, int] = field(default_factory=dict[str, int])
    """Their places."""
    versions: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a version → when it was measured first."""


def render_index(site: SiteIndex) -> str:
    """The script that says which versions, environments and cases there are."""
    ordered = sorted(site.versions.items(), key=lambda item: item[1], reverse=True)
    comparing_page = {
        "versions": [[shorten_version(name), date[:10], file_of(name)] for name, date in ordered],
        "environments": _list_environments(site.environments),
        "cases": _list_cases(site.cases),
        "baselines": list(site.baselines),
        "timers": list(site.timers),
        "verdicts": VERDICTS,
    }
    return f"benchaxIndex({json.dumps(comparing_page, separators=(',', ':'))});\n"


def _list_environments(environments: Mapping[str, Mapping[str, str]]) -> dict[str, object]:
    """Lists their names, what all have in common, and how each differs."""
    common, own = split_common(list(environments.values()))
    names = [name_environment(fingerprint, f) for fingerprint, f in environments.items()]
    return {"names": names, "common": common, "own": own}


def _list_cases(cases: Sequence[CaseSummary]) -> dict[str, list[str]]:
    """By the number that files of versions name a case by."""
    return {str(case.id): [case.label, case.page] for case in sorted(cases, key=lambda case: case.label)}


PAGES = (("index.html", "Changes"), ("cases.html", "All cases"), ("compare.html", "Compare"), ("feed.xml", "Feed"))


def frame(up: str = "", here: str = "", below: Markup = EMPTY, scripts: tuple[str, ...] = ()) -> Shared:
    """Args:
    up: the way from the page to the site's folder: "../".
    here: the page's own name, where it is one of those that all pages lead to.
    """
    styles, own = (f"{up}assets/site.css",), f"{up}assets/site.js"
    return Shared(f"{up}assets", _navigation(up, here), below, styles, (own, *scripts))


def _navigation(up: str, here: str) -> Markup:
    links = (element("a", text, href=up + file, aria_current="page" if file == here else "") for file, text in PAGES)
    return element("nav", *links, aria_label="Site", css_class="site")
