"""The content of a site: a page for each case, the lists of all cases, and recent changes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchax.comparing.gate import amount
from benchax.comparing.history import History
from benchax.comparing.ranking import Comparisons
from benchax.grouping import group_by
from benchax.model import NOT_COMPARED, CaseId, Comparison, Environment
from benchax.printable import cap, show_line
from benchax.reporting.comparisons import NAMES, interval, style, verdict
from benchax.reporting.comparisons import chart as chart_comparisons
from benchax.reporting.document import (
    Axis,
    AxisTick,
    Block,
    Chart,
    Document,
    Facts,
    Heading,
    Paragraph,
    Section,
    Style,
    Table,
    TableCell,
    TableColumn,
    TextRow,
    place_points,
    tabulate,
)
from benchax.reporting.history import NO_TIMES, commit, document_with_chart, heading, size_of, sparkline
from benchax.reporting.html import EMPTY, Markup, Shared, element
from benchax.reporting.tables import (
    CASE,
    COMMIT,
    VERDICT,
    WHEN,
    WHERE,
    describe_date,
    describe_fact,
    estimate,
    one_line,
)
from benchax.stats.changepoints import FALSE_ALARMS, LEAST, P
from benchax.store.comparisons import CaseActivity
from benchax.store.schema import Row
from benchax.units import number, percent, plural, seconds, seconds_range

MOST_POINTS = 3000
"""Rows in a chart, the newest ones."""
MOST_ROWS = 30
"""In the table."""
MOST_SERIES = 8
"""Environments that have a separate colour; the page describes this many."""
MOST_TICKS = 30
NO_COMPARISON = "nothing was compared with a baseline yet, so nothing is judged; run benchax compare"
ALONE = "Each time comes from its own session. Its 95 % interval does not cover differences between sessions."


@dataclass(frozen=True)
class CaseTimeline:
    """All that a page says of a case."""

    case: CaseId
    rows: Sequence[Row]
    histories: Sequence[History]
    environments: Mapping[str, Mapping[str, str]]
    """Facts by fingerprint, of all that the rows were measured in."""


def documents(found: CaseTimeline) -> tuple[Document, ...]:
    """The page's own first, then a part for each history, under its metric and baseline."""
    blocks: list[Block] = [Heading(found.case.label, 1, (_count(found),))]
    if not found.histories:
        blocks.append(Paragraph(NO_COMPARISON, "faint"))
    if found.rows:
        newest = dict.fromkeys(row.fingerprint for row in reversed(found.rows))
        chosen = {each: name_environment(found.environments.get(each, {}), each) for each in list(newest)[:MOST_SERIES]}
        names = {each: chosen.get(each, "other environments") for each in newest}
        blocks += [Heading("Times"), Paragraph(f"{ALONE} So {NO_TIMES}.", "faint")]
        blocks += [_chart(found.rows, names), _table(found.rows, names)]
        blocks += _describe_environments(
            {chosen[each]: found.environments[each] for each in chosen if each in found.environments}
        )
    if found.histories:
        blocks.append(Heading("Comparisons with baselines"))
    parts = [(h, document_with_chart(h).blocks[1:]) for h in found.histories]
    return (
        Document(tuple(blocks)),
        *(Document((Heading(heading(h), 1, style=style(h.points[-1])), *rest)) for h, rest in parts),
    )


def _count(found: CaseTimeline) -> str:
    """12 rows, 1 failed · 24 comparisons · 2026-01-01 to 2026-01-24"""
    failed = sum(row.status != "ok" for row in found.rows)
    compared = [c for h in found.histories for c in h.points]
    dates = sorted({*(row.started_at[:10] for row in found.rows), *(c.compared_at[:10] for c in compared)})
    facts = (
        plural(len(found.rows), "row") + (f", {failed} failed" if failed else "") if found.rows else "",
        plural(len(compared), "comparison") if compared else "",
        " to ".join(dict.fromkeys((dates[0], dates[-1]))),
    )
    return " · ".join(filter(None, facts))


# ---- times ------------------------------------------------------------------------------------------------------


def _chart(rows: Sequence[Row], names: Mapping[str, str]) -> Chart:
    """Args:
    names: of environments, by fingerprint.
    """
    shown = rows[-MOST_POINTS:]
    by_name = group_by(
        enumerate(shown), lambda one: "not measured" if one[1].median_s is None else names[one[1].fingerprint]
    )
    marks = tuple(
        place_points(
            [(place, row.median_s, row.low_s, row.high_s) for place, row in placed],
            label=name,
            style="faint" if name == "not measured" else "",
        )
        for name, placed in by_name.items()
    )
    older = f"the newest {MOST_POINTS} of {len(rows)} rows" if len(shown) < len(rows) else ""
    named = range(0, len(shown), -(-len(shown) // MOST_TICKS))
    ticks = tuple(AxisTick(i, shorten_version(version_of_row(shown[i]))) for i in named)
    x = Axis(ends=(-1, len(shown)), ticks=ticks, are_names=True)
    y = Axis("time per call", "seconds")
    return Chart(x, y, marks, "time per call, session by session", has_series=len(marks) > 1, note=older, is_broad=True)


def _table(rows: Sequence[Row], names: Mapping[str, str]) -> Table:
    """The newest rows. `names`: of environments, by fingerprint."""
    shown = rows[-MOST_ROWS:]
    timer, why = TableColumn("timer", "words"), TableColumn("", "words")
    columns = (WHEN, COMMIT, WHERE, timer, "median", "95 %", "samples", why)
    older = f"{len(rows) - len(shown)} older ones are not listed" if len(shown) < len(rows) else ""
    lines = [
        (describe_date(row.started_at), shorten_version(version_of_row(row)), names[row.fingerprint], *_words(row))
        for row in shown
    ]
    return tabulate(columns, lines, ["" if row.status == "ok" else "bad" for row in shown], older)


def _words(row: Row) -> tuple[str, ...]:
    if row.median_s is None:
        why = "no samples" if row.status == "ok" else (row.failure_kind or row.status).replace("_", " ")
        return row.timer or "", "", "", "", f"not measured: {why}"
    between, status = seconds_range(row.low_s, row.high_s), "" if row.status == "ok" else row.status
    return row.timer or "", seconds(row.median_s), between, str(row.n or ""), status


def _describe_environments(by_name: Mapping[str, Mapping[str, str]]) -> tuple[Block, ...]:
    """Describes what the environments have in common, and how each differs."""
    if not by_name:
        return ()
    common, own = split_common(list(by_name.values()))
    named = {"in all of these environments": common, **dict(zip(by_name, own, strict=True))}
    sections = named if len(by_name) > 1 else dict.fromkeys(by_name, common)
    listed = (Section(title, tuple(TextRow(*fact) for fact in facts.items())) for title, facts in sections.items())
    return Heading("Environments"), Facts(tuple(listed), "words")


LONGEST_FACT = 400


def describe_facts(env: Environment) -> dict[str, str]:
    """By name: host, jax, memory, XLA_FLAGS. Unknown ones are left out."""
    found: dict[str, str] = {}
    for f in dataclasses.fields(Environment):
        value: Any = getattr(env, f.name)
        if isinstance(value, Mapping) and f.name not in NOT_COMPARED:
            found |= {str(key): str(setting) for key, setting in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        elif value is not None and f.name not in NOT_COMPARED:
            found[f.name.removesuffix("_bytes").replace("_", " ")] = describe_fact(f.name, value)
    return {name: cap(show_line(text), LONGEST_FACT) for name, text in found.items() if text}


def split_common(facts: Sequence[Mapping[str, str]]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Returns the facts that all environments have in common, and the other facts of each."""
    first: Mapping[str, str] = facts[0] if facts else {}
    common = {name: text for name, text in first.items() if all(each.get(name) == text for each in facts)}
    return common, [{name: text for name, text in each.items() if name not in common} for each in facts]


def name_environment(facts: Mapping[str, str], fingerprint: str = "") -> str:
    """node-17 · cpu · AMD EPYC · jax 0.10.2 · 3f2a1b; a list of cases has no room for the device and the digits."""
    backend, jax = facts.get("backend", ""), f"jax {facts['jax']}" if "jax" in facts else ""
    device = facts.get("processor" if backend == "cpu" else "device kind", "") if fingerprint else ""
    parts = (facts.get("host", "host unknown"), backend, device, jax, fingerprint[:6])
    return " · ".join(cap(part, 60) for part in parts if part)


@dataclass(frozen=True)
class FoundChange:
    """A change, or a first sign of one, as lists of all cases and the feed tell it."""

    at: str
    """When it was compared first; UTC, ISO 8601."""
    commit: str
    last: str
    """The commit of the comparison before it; empty of a first sign."""
    size: str
    """12 % slower"""
    sure: str
    there: str
    """The ratio of the first comparison after it, with its interval."""
    newest: str
    """The value of the newest row."""
    metric: str
    baseline: str
    is_worse: bool
    is_recent: bool
    is_sign: bool = False


@dataclass(frozen=True)
class CaseSummary:
    """The content of the lists of all cases for one case."""

    id: int
    page: str
    label: str
    """Shortened."""
    newest_at: str = ""
    version: str = ""
    """The version of its newest row."""
    time: str = ""
    where: str = ""
    """The name of the environment."""
    status: str = ""
    bars: str = ""
    newest: Comparison | None = None
    """The newest comparison, which is one of run times if there is any."""
    looks: int = 0
    """Comparisons among the newest ones of each of its series in which a change could have been found by mistake."""
    changes: tuple[FoundChange, ...] = ()


def name_version(commit: str | None, is_dirty: bool | None, run: str = "") -> str:
    """Returns a version's name: the whole commit, with + for uncommitted changes, or the run if there is no commit."""
    return commit + "+" * bool(is_dirty) if commit else f"run {run}"


def shorten_version(name: str) -> str:
    """a1b2c3d4+; run 0f9e8d7c6b5a"""
    return name[:16] if name.startswith("run ") else name[:8] + "+" * name.endswith("+")


def version_of_row(row: Row) -> str:
    return name_version(row.commit, row.is_dirty, row.run_id)


def file_of(version: str) -> str:
    """A name of a version's file that no text of a stranger can lead astray."""
    return f"{hashlib.sha256(version.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}.js"


RECENT = 30
"""This many of the newest comparisons of each series count as "lately"."""
LONGEST_LABEL = 100
BARS = 16


def shorten_label(label: str) -> str:
    return cap(show_line(one_line(label)), LONGEST_LABEL)


def summarize(activity: CaseActivity, found: CaseTimeline, page: str) -> CaseSummary:
    # The histories come in the order of their newest comparisons.
    judged = ([h for h in found.histories if h.metric == "run"] or list(found.histories))[-1:]
    summary = CaseSummary(
        activity.id,
        page,
        shorten_label(found.case.label),
        newest_at=max(
            [row.started_at for row in found.rows[-1:]] + [h.points[-1].compared_at for h in found.histories]
        ),
        bars="".join(sparkline(h, BARS).bars for h in judged),
        newest=judged[0].points[-1] if judged else None,
        looks=sum(map(count_looks, found.histories)),
        changes=tuple(sorted((c for h in found.histories for c in _list_changes(h)), key=lambda c: c.at)),
    )
    if not found.rows:
        return summary
    row = found.rows[-1]
    return replace(
        summary,
        version=shorten_version(version_of_row(row)),
        time=estimate(row) or "not measured",
        where=name_environment(found.environments[row.fingerprint]),
        status=row.status,
    )


def count_looks(h: History) -> int:
    """Counts the newest comparisons in which a change can be found by mistake. They have a value and noise. The first
    ones of a history do not count, because a change has `LEAST` comparisons on either side."""
    known = [place for place, value in enumerate(h.values) if value is not None]
    return 0 if h.is_counted else sum(place >= len(h.values) - RECENT for place in known[2 * LEAST - 1 :])


# ---- changes ----------------------------------------------------------------------------------------------------


def _list_changes(h: History) -> Iterator[FoundChange]:
    about = NAMES[h.metric], shorten_label(h.baseline)
    newest, value = h.points[-1], _describe_value(h.points[-1], h)
    for change in h.changes:
        first, last = h.points[change.at], commit(h.points[change.last])
        sure = "counted, without noise" if change.p is None else f"p < {P}"
        said = last, size_of(change, h), sure, _describe_value(first, h), value
        is_recent = change.at >= len(h.points) - RECENT
        yield FoundChange(first.compared_at, commit(first), *said, *about, change.after > change.before, is_recent)
    if h.jump is not None:
        said = f"{percent(h.jump)} above the median before it", "a first sign: the next comparisons will show"
        yield FoundChange(newest.compared_at, commit(newest), "", *said, value, value, *about, True, True, is_sign=True)


def _describe_value(c: Comparison, h: History) -> str:
    if h.is_counted:
        return "" if c.candidate_value is None else amount(c.candidate_value, h.metric)
    return interval(c)


# ---- the first page ---------------------------------------------------------------------------------------------

MOST_CHANGES = 300
"""In a table."""
MOST_NEWEST = 20
"""Cases on the first page."""
CASES_ON_A_PAGE = 500
CHANGES = (
    WHEN, CASE, TableColumn("of", "words"), TableColumn("change", "words", 12), COMMIT,
    TableColumn("last before it", "words"), TableColumn("at that commit"), TableColumn("newest"),
    TableColumn("sure", "words"),
)  # fmt: skip
NOTHING_COMPARED = (
    "No case was compared with a baseline yet, so nothing is judged. Times of two sessions differ by 30 % and more for "
    "reasons that are not in the code; benchax compare measures both versions side by side."
)

Found = tuple[CaseSummary, FoundChange]


def overview(cases: Sequence[CaseSummary]) -> Document:
    """Lists the recent changes, the newest first, then the newest times and verdicts, then older changes."""
    ordered = sorted(cases, key=lambda case: case.newest_at, reverse=True)
    below = (f"{plural(len(cases), 'case')} · newest row {describe_date(ordered[0].newest_at)} UTC",)
    shown = ordered[:MOST_NEWEST]
    runs = tuple(case.newest for case in shown if case.newest and case.newest.metric == "run")
    picture = [chart_comparisons(Comparisons(runs))] if runs else []
    newest = [Heading("Newest times and verdicts"), *picture, _tabulate_cases(shown)]
    found = list_changes(cases)
    recent = [each for each in found if each[1].is_recent and not each[1].is_sign]
    said = [Paragraph(text) for text in describe_certainty(cases, recent)]
    return Document(
        (
            Heading("What changed lately", 1, below),
            *(said if any(case.newest for case in cases) else [Paragraph(NOTHING_COMPARED, "warning")]),
            *_section("Slower, or more of it", [each for each in recent if each[1].is_worse]),
            *_section("Faster, or less of it", [each for each in recent if not each[1].is_worse]),
            *_section("First signs", [each for each in found if each[1].is_sign]),
            *newest,
            *_section("Before that", [each for each in found if not each[1].is_recent]),
            *_describe_failures(cases),
        )
    )


def list_changes(cases: Iterable[CaseSummary]) -> list[Found]:
    """The newest first."""
    found = [(case, change) for case in cases for change in case.changes]
    return sorted(found, key=lambda each: (each[1].at, each[0].label), reverse=True)


def describe_certainty(cases: Iterable[CaseSummary], recent: Sequence[Found]) -> Iterator[str]:
    """How many changes were found among how many comparisons, and how many of them are to be expected by chance."""
    yield (
        f"{plural(len(recent), 'change')} among the newest {RECENT} comparisons of each case with each baseline. "
        "Each is judged by itself, by Student's t test on the ratios before and after it; its interval comes from the "
        "comparison."
    )
    looks = sum(case.looks for case in cases)
    if not looks:
        yield f"A change takes {LEAST} comparisons on either side of it: no case has enough yet, or all were counted."
        return
    expected = (share * looks for share in FALSE_ALARMS)
    low, high = (number(n, 2) if n < 10 else str(math.ceil(n)) for n in expected)
    yield (
        f"How sure: in unchanged code, {percent(FALSE_ALARMS[0])} to {percent(FALSE_ALARMS[1])} of comparisons "
        "begin a false change (for ratios that scatter by 1.5 % and by 3 %). Among "
        f"{plural(looks, 'comparison')} with noise, expect {low} to {high} by chance; "
        f"{sum(change.sure.startswith('p ') for _, change in recent)} were found. More comparisons can withdraw a "
        "change, or move it by a commit."
    )


def _section(title: str, found: Sequence[Found]) -> list[Block]:
    many = f"the newest {MOST_CHANGES} of {len(found)}; the pages of cases have all"
    rows = tuple(_line(case, change) for case, change in found[:MOST_CHANGES])
    return [Heading(title), Table(CHANGES, rows, many if len(found) > MOST_CHANGES else "")] if rows else []


def _line(case: CaseSummary, change: FoundChange) -> tuple[TableCell, ...]:
    look: Style = "warning" if change.is_sign else "bad" if change.is_worse else "good"
    plain = (change.commit, change.last, change.there, change.newest, change.sure)
    about = TableCell(f"{change.metric} against {change.baseline}"), TableCell(change.size, look)
    return TableCell(describe_date(change.at)), _link(case), *about, *map(TableCell, plain)


def _link(case: CaseSummary) -> TableCell:
    return TableCell(case.label, link=f"cases/{case.page}")


def _describe_failures(cases: Sequence[CaseSummary]) -> list[Block]:
    failed = [
        (_link(case), TableCell(case.status, "bad"), TableCell(describe_date(case.newest_at)))
        for case in cases
        if case.status not in ("", "ok")
    ]
    more = f"the first {MOST_CHANGES} of {len(failed)}" if len(failed) > MOST_CHANGES else ""
    table = Table((CASE, TableColumn("", "words"), WHEN), tuple(failed[:MOST_CHANGES]), more)
    return [Heading("Without a time in their newest row"), table] if failed else []


# ---- all cases --------------------------------------------------------------------------------------------------


def name_list(page: int) -> str:
    """cases.html, cases-2.html: counted from 1."""
    return "cases.html" if page == 1 else f"cases-{page}.html"


def lists_of_cases(cases: Sequence[CaseSummary]) -> Iterator[Document]:
    """Yields pages with a fixed number of cases each, by their labels; each leads to the others."""
    ordered = sorted(cases, key=lambda case: (case.label, case.page))
    pages = [ordered[i : i + CASES_ON_A_PAGE] for i in range(0, len(ordered), CASES_ON_A_PAGE)]
    ends = [
        (TableCell(f"page {n}", link=name_list(n)), TableCell(listed[0].label), TableCell(listed[-1].label))
        for n, listed in enumerate(pages, 1)
    ]
    columns = (TableColumn("", "words"), TableColumn("from", "words"), TableColumn("to", "words"))
    total = plural(len(cases), "case")
    for n, listed in enumerate(pages, 1):
        below = f"page {n} of {len(pages)}: {len(listed)} of {total}" if len(pages) > 1 else total
        others = Heading("Other pages"), Table(columns, (*ends[: n - 1], *ends[n:]))
        title, table = Heading("All cases", 1, (below,)), _tabulate_cases(listed)
        yield Document((title, table, *(others if len(pages) > 1 else ())))


def _tabulate_cases(cases: Sequence[CaseSummary]) -> Table:
    columns = (
        CASE, WHEN, COMMIT, TableColumn("time per call (95 %)"), TableColumn("where", "words"),
        TableColumn("history of the ratio", "words"), TableColumn("newest ratio"), VERDICT,
    )  # fmt: skip
    return Table(columns, tuple(map(_case_line, cases))).without_empty_columns({0})


def _case_line(case: CaseSummary) -> tuple[TableCell, ...]:
    c = case.newest
    plain = (describe_date(case.newest_at), case.version, case.time, case.where, case.bars, interval(c) if c else "")
    return _link(case), *map(TableCell, plain), TableCell(verdict(c), style(c)) if c else TableCell("")


# ---- two versions side by side ----------------------------------------------------------------------------------

INDEX = "index.js"
NOTE = (
    "Each time comes from its own session. Sessions differ by 30 % and more for reasons that are not in the code. So "
    "the ratio of two medians is not judged here: benchax compare measures both side by side. Ratios to a baseline "
    "were taken that way, and the comparisons gave their verdicts."
)
COMPARING = Document((Heading("Compare two versions, machines or JAX versions", 1), Paragraph(NOTE, "faint")))
PLACEHOLDER = element(
    "section", element("p", "Choosing what to compare needs JavaScript.", css_class="faint"), id="versions"
)


def render_index(
    cases: Sequence[CaseSummary], environments: Mapping[str, Mapping[str, str]], versions: Mapping[str, str]
) -> str:
    """The script that says which versions, environments and cases there are. Files of versions name an environment by
    its fingerprint.

    Args:
        environments: facts as texts, by fingerprint.
        versions: name of a version → when it was measured first.
    """
    ordered = sorted(versions.items(), key=lambda item: item[1], reverse=True)
    _, own = split_common(list(environments.values()))
    named = zip(environments.items(), own, strict=True)
    index = {
        "versions": [[shorten_version(name), date[:10], file_of(name)] for name, date in ordered],
        "environments": {
            key: {"name": name_environment(facts, key), "own": its_own} for (key, facts), its_own in named
        },
        "cases": {str(case.id): [case.label, case.page] for case in sorted(cases, key=lambda case: case.label)},
    }
    return f"benchaxIndex({json.dumps(index, separators=(',', ':'))});\n"


SCRIPT = "site.js"
PAGES = (("index.html", "Changes"), ("cases.html", "All cases"), ("compare.html", "Compare"), ("feed.xml", "Feed"))


def frame(up: str = "", here: str = "", below: Markup = EMPTY, scripts: tuple[str, ...] = ()) -> Shared:
    """Args:
    up: the way from the page to the site's folder: "../".
    here: the page's own name, where it is one of those that all pages lead to.
    """
    links = (element("a", text, href=up + file, aria_current="page" if file == here else "") for file, text in PAGES)
    above = element("nav", *links, aria_label="Site", css_class="site")
    return Shared(f"{up}assets", above, below, (f"{up}assets/{SCRIPT}", *scripts))
