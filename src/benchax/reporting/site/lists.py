"""The lists of all cases: recent changes, their certainty, and the current state of each case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from benchax.reporting.document import Block, Document, Heading, Paragraph, Style, Table, TableCell, TableColumn
from benchax.reporting.site.state import CaseSummary, FoundChange
from benchax.reporting.site.summarizing import RECENT
from benchax.reporting.tables import CASE, COMMIT, VERDICT, VERDICT_STYLES, WHEN
from benchax.stats.changepoints import FALSE_ALARMS, LEAST
from benchax.stats.verdicts import Verdict
from benchax.units import number, percent, plural

MOST_CHANGES = 300
"""In a table."""
CASES_ON_A_PAGE = 500
CHANGE = TableColumn("change", "words", 12)
NOTHING_COMPARED = (
    "No case was compared with a baseline yet, so nothing is judged. Times of two sessions differ by 30 % and more for "
    "reasons that are not in the code; benchax compare measures both versions side by side."
)

Found = tuple[CaseSummary, FoundChange]


def overview(cases: Sequence[CaseSummary]) -> Document:
    """Lists the recent changes, the newest first, then older changes."""
    newest = max(case.newest_at for case in cases)
    below = (f"{plural(len(cases), 'case')} · newest row {newest[:16].replace('T', ' ')} UTC",)
    blocks: list[Block] = [Heading("What changed lately", 1, below)]
    if not any(case.ratio or case.verdict for case in cases):
        return Document((*blocks, Paragraph(NOTHING_COMPARED, "warning"), *_describe_failures(cases)))
    found = list_changes(cases)
    recent = [each for each in found if each[1].is_recent and not each[1].is_sign]
    blocks += [Paragraph(text) for text in describe_certainty(cases, recent)]
    blocks += _section("Slower, or more of it", [each for each in recent if each[1].is_worse])
    blocks += _section("Faster, or less of it", [each for each in recent if not each[1].is_worse])
    blocks += _section("First signs", [each for each in found if each[1].is_sign])
    blocks += _section("Before that", [each for each in found if not each[1].is_recent])
    return Document((*blocks, *_describe_failures(cases)))


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
            f"How sure: where nothing changed, {percent(FALSE_ALARMS[0])} to {percent(FALSE_ALARMS[1])} of comparisons "
            "begin a change that is none (for ratios that scatter by 1.5 % and by 3 %). Of "
            f"{plural(looks, 'comparison')} with noise that is {_expected(low)} to {_expected(high)} by chance, beside "
            f"{len(judged)} found. A change may be withdrawn, or move by a commit, when more comparisons come in."
        )
    else:
        yield f"A change takes {LEAST} comparisons on either side of it: no case has so many yet, or all were counted."


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
    style: Style = "bad" if change.is_worse else "good"
    of = f"{change.metric} against {change.baseline}"
    plain = (change.commit, change.last, change.there, change.newest, change.sure)
    return (
        TableCell(_when(change.at)),
        TableCell(case.label, link=f"cases/{case.page}"),
        TableCell(of),
        TableCell(change.size, "warning" if change.is_sign else style),
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
            TableCell(_when(case.newest_at)),
        )
        for case in failed
    )
    more = f"the first {MOST_CHANGES} of {len(failed)}" if len(failed) > MOST_CHANGES else ""
    columns = (CASE, TableColumn("", "words"), WHEN)
    return Heading("Without a time in their newest row"), Table(columns, rows[:MOST_CHANGES], more)


def _when(date: str) -> str:
    return date[:16].replace("T", " ")


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
    columns = (
        CASE, WHEN, COMMIT, TableColumn("time per call (95 %)"), TableColumn("where", "words"),
        TableColumn("history of the ratio", "words"), TableColumn("newest ratio"), VERDICT,
    )  # fmt: skip
    rows = tuple(_case_line(case, environments) for case in cases)
    listed = Table(columns, rows).without_empty_columns({0})
    return Document((Heading("All cases", 1, below), listed, *_link_pages(page, pages)))


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
    # What is no verdict alone begins with the result, which differs.
    style = VERDICT_STYLES.get(cast("Verdict", case.verdict), "bad" if case.verdict else "")
    plain = (_when(case.newest_at), case.version, case.time, where, case.bars, case.ratio)
    return TableCell(case.label, link=f"cases/{case.page}"), *map(TableCell, plain), TableCell(case.verdict, style)
