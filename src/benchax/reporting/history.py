"""Histories in words: a line of bars, a table with the newest comparison last, a sentence for each change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchax.comparing.gate import amount
from benchax.comparing.history import Change, History
from benchax.model import Comparison, Metric
from benchax.reporting.comparisons import COUNTED, interval
from benchax.reporting.document import Document, Heading, List, Paragraph, Sparkline, Style, Table, tabulate
from benchax.reporting.tables import CASE, COMMIT, REMARKS, VERDICT, VERDICT_STYLES, WHEN, one_line
from benchax.stats.changepoints import P
from benchax.units import number, percent, plural

NAMES: dict[Metric, str] = {
    "run": "run time",
    "compile": "time to compile",
    "peak": "planned peak of memory",
    "constants": "bytes of constants",
    "flops": "operations",
}
LONGEST_LINE = 60
"""Bars, the newest ones."""
LONGEST_TABLE = 30
FEW = 10
"""Points of which only great changes can be told."""
NO_TIMES = "times are those of their own session: not to be compared with one another, and not judged"


def document(h: History) -> Document:
    values, breaks = _newest(h, LONGEST_LINE)
    sentences = [Paragraph(sentence, style) for sentence, style in describe_changes(h)]
    sentences += [] if h.is_counted else [Paragraph(NO_TIMES, "faint")]
    title = Heading(one_line(h.case.label), 1, (heading(h),))
    return Document((title, Sparkline(values, span(h), breaks), grid(h), List(tuple(sentences))))


def heading(h: History) -> str:
    """run time against v1.2 · 42 comparisons"""
    return f"{NAMES[h.metric]} against {one_line(h.baseline)} · {plural(len(h.points), 'comparison')}"


# ---- bars -------------------------------------------------------------------------------------------------------


def sparkline(h: History, longest: int = LONGEST_LINE) -> str:
    """A bar for each of the newest points."""
    values, breaks = _newest(h, longest)
    return Sparkline(values, breaks=breaks).bars


def _newest(h: History, longest: int) -> tuple[tuple[float | None, ...], tuple[int, ...]]:
    """(values, places among them from which on they are of another machine)"""
    first = max(0, len(h.values) - longest)
    return tuple(h.values[first:]), tuple(found.at - first for found in h.breaks if found.at > first)


def span(h: History) -> str:
    """What the line of bars spans: 0.98 to 1.13 times v1.2"""
    values = [v for v in h.values[-LONGEST_LINE:] if v is not None]
    if not values:
        return "nothing measured"
    ends = [amount(v, h.metric) if h.is_counted else number(v) for v in (min(values), max(values))]
    both = ends[0] if ends[0] == ends[1] else " to ".join(ends)
    return both if h.is_counted else f"{both} times {one_line(h.baseline)}"


# ---- tables -----------------------------------------------------------------------------------------------------


def grid(h: History) -> Table:
    """A line for each of the newest comparisons."""
    remarks = _remarks(h)
    first = max(0, len(h.points) - LONGEST_TABLE)
    shown = list(enumerate(h.points))[first:]
    lines = [
        (
            c.compared_at[:16].replace("T", " "),
            commit(c),
            interval(c),
            COUNTED[c.verdict] if h.is_counted else c.verdict,
            "" if c.candidate_value is None else amount(c.candidate_value, h.metric),
            "; ".join(remarks[i]),
        )
        for i, c in shown
    ]
    changed: dict[int, Style] = {change.at: _style(change) for change in h.changes}
    styles: list[Style] = [changed.get(i, _plain(value)) for i, value in enumerate(h.values)]
    name = "amount" if h.is_counted else "time then"
    older = f"{first} older ones are not listed; --json has them" if first else ""
    return tabulate((WHEN, COMMIT, "change", VERDICT, name, REMARKS), lines, styles[first:], note=older)


def _remarks(h: History) -> list[list[str]]:
    """By place."""
    found: list[list[str]] = [[] for _ in h.points]
    for change in h.changes:
        found[change.at].append(f"from here on {size_of(change, h)}")
    for found_break in h.breaks:
        found[found_break.at].append(found_break.why)
    for i, c in enumerate(h.points):
        if c.ratio is None and c.why:
            found[i].append(c.why)
        if c.numerics is not None and not c.numerics.agrees:
            found[i].append("outputs differ")
    return found


def overview(histories: Sequence[History]) -> Table:
    """A line for each history."""
    columns = (CASE, "baseline", "history", "newest", VERDICT, COMMIT, REMARKS)
    return tabulate(columns, map(_overview_line, histories), [VERDICT_STYLES[h.points[-1].verdict] for h in histories])


def _overview_line(h: History) -> tuple[str, ...]:
    newest = h.points[-1]
    value = newest.candidate_value
    return (
        one_line(h.case.label),
        one_line(h.baseline),
        sparkline(h, 30),
        interval(newest) if not h.is_counted else "" if value is None else amount(value, h.metric),
        COUNTED[newest.verdict] if h.is_counted else newest.verdict,
        commit(newest),
        f"{size_of(h.changes[-1], h)} from {commit(h.points[h.changes[-1].at])} on" if h.changes else "",
    )


# ---- sentences --------------------------------------------------------------------------------------------------


def describe_changes(h: History) -> Iterable[tuple[str, Style]]:
    """A sentence for each change, the oldest first, and for a newest point that stands out."""
    for change in h.changes:
        yield sentence(change, h), _style(change)
    if not h.changes:
        yield _nothing_found(h), "faint"
    if h.jump is not None:
        newest = commit(h.points[-1])
        yield f"{newest} is {percent(h.jump)} above the median before it: the next comparisons will show", "warning"


def _nothing_found(h: History) -> str:
    points = sum(v is not None for v in h.values)
    if not points:
        return "no comparison has a number: the remarks say why"
    if h.is_counted or points >= FEW:
        return "no change point"
    return f"no change point: {plural(points, 'point')} can show great changes only"


def sentence(change: Change, h: History) -> str:
    """from a1b2c3d4 on 12 % slower (p < 0.001); the last before it is 0f9e8d7c"""
    sure = "" if change.p is None else f" (p < {P})"
    at, last = (commit(h.points[place]) for place in (change.at, change.last))
    return f"from {at} on {size_of(change, h)}{sure}; the last before it is {last}"


def size_of(change: Change, h: History) -> str:
    """12 % slower; takes 8 % less time; 2.00 MiB in place of 1.00 MiB"""
    if h.is_counted or change.factor is None:
        return f"{amount(change.after, h.metric)} in place of {amount(change.before, h.metric)}"
    if change.factor > 1:
        return f"{percent(change.factor - 1)} slower"
    return f"{percent(1 - change.factor)} less time"


def _plain(value: float | None) -> Style:
    return "faint" if value is None else ""


def _style(change: Change) -> Style:
    return "bad" if change.after > change.before else "good"


def commit(c: Comparison) -> str:
    """Its first digits, + where there were uncommitted changes; the candidate's name where there is none."""
    name = c.candidate
    return name.commit[:8] + ("+" if name.is_dirty else "") if name.commit else one_line(name.label)
