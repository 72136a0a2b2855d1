"""Histories: a line of bars, a table with the newest comparison last, a sentence for each change; and as a chart.

The chart has the ratios with their intervals by commit, the levels between changes, and what broke them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from benchax.comparing.gate import amount
from benchax.comparing.history import Change, History, Stretch
from benchax.model import METRICS, Comparison
from benchax.reporting import figures
from benchax.reporting.comparisons import NAMES, interval, style, verdict
from benchax.reporting.document import (
    Axis,
    AxisTick,
    Chart,
    Document,
    Heading,
    Line,
    List,
    Mark,
    Paragraph,
    Points,
    Quantity,
    ReferenceLine,
    Sparkline,
    Style,
    Table,
    TableColumn,
    list_parts,
    place_points,
    tabulate,
)
from benchax.reporting.tables import CASE, COMMIT, REMARKS, VERDICT, date_column, one_line, truncate
from benchax.stats.changepoints import P
from benchax.units import count, number, percent, plural

LONGEST_LINE = 60
"""Bars, the newest ones."""
BARS, BARS_BESIDE_BASELINES = 20, 12
"""In a table of many histories: as many as 80 columns hold next to long names."""
LONGEST_TABLE = 30
FEW = 10
"""With this many points or fewer, benchax can find only large changes."""
MOST_NAMES = 34
"""Commits that are named on the axis, besides those where something changed."""
MOST_COUNTS = 6
"""Up to this many counts are axis labels themselves: 1.00 MiB, not 977 KiB."""
LONGEST_WHY = 44
LEAST_SPAN = 0.06
"""The axis shows at least this share, so that noise does not fill it."""
LONGEST_NAME = 16
LONGEST_TITLE = 70
NO_TIMES = "times are those of their own session: not to be compared with one another, and not judged"


def document(h: History) -> Document:
    newest = h.points[-1]
    said = ", ".join(filter(None, (verdict(newest), interval(newest))))
    title = Heading(f"{one_line(h.case.label)}: {said}", 1, (heading(h),), style=style(newest))
    changes = List(tuple(Paragraph(sentence, style) for sentence, style in describe_changes(h)))
    times = [] if h.is_counted else [Paragraph(NO_TIMES, "faint")]
    return Document((title, changes, sparkline(h), grid(h), *times))


def document_with_chart(h: History) -> Document:
    """For a page, whose chart says what the line of bars says, and more."""
    blocks = [block for block in document(h).blocks if not isinstance(block, Sparkline)]
    return Document((blocks[0], replace(chart(h), is_broad=True), *blocks[1:]))


def documents_of_all(histories: Sequence[History]) -> tuple[Document, ...]:
    """For a page: of several histories an overview first, each line leading to its part."""
    documents = tuple(map(document_with_chart, histories))
    return list_parts(f"Histories of {plural(len(histories), 'case')}", documents, overview(histories))


def heading(h: History) -> str:
    """run time against v1.2 · 42 comparisons"""
    return f"{NAMES[h.metric]} against {one_line(h.baseline)} · {plural(len(h.points), 'comparison')}"


# ---- bars -------------------------------------------------------------------------------------------------------


def sparkline(h: History, longest: int = LONGEST_LINE) -> Sparkline:
    """A bar for each of the newest points. Marks from where on they are of another machine."""
    first = max(0, len(h.values) - longest)
    breaks = tuple(found.at - first for found in h.breaks if found.at > first)
    return Sparkline(tuple(h.values[first:]), span(h), breaks)


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
    changed: dict[int, Style] = {change.at: _style(change) for change in h.changes}
    styles: list[Style] = [changed.get(i, "faint" if value is None else "") for i, value in enumerate(h.values)]
    name = "amount" if h.is_counted else "time then"
    older = f"{first} older ones are not listed; --json has them" if first else ""
    rates = list(dict.fromkeys(what for c in h.points for what in c.work)) if h.metric == "run" else []
    when, dates = date_column(c.compared_at for _, c in shown)
    columns = (when, COMMIT, "change", VERDICT, name, *(f"{what}/s then" for what in rates), REMARKS)
    lines = [
        (
            date,
            commit(c),
            interval(c),
            verdict(c),
            "" if c.candidate_value is None else amount(c.candidate_value, h.metric),
            *(
                count(c.work[what] / c.candidate_value) if c.candidate_value and what in c.work else ""
                for what in rates
            ),
            "; ".join(remarks[i]),
        )
        for (i, c), date in zip(shown, dates, strict=True)
    ]
    return tabulate(columns, lines, styles[first:], note=older)


def _remarks(h: History) -> list[list[str]]:
    """By place."""
    changes = {change.at: f"from here on {size_of(change, h)}" for change in h.changes}
    breaks = {each.at: each.why for each in h.breaks}
    found = (
        (changes.get(i), breaks.get(i), c.why if c.ratio is None else "", "outputs differ" if c.differs else "")
        for i, c in enumerate(h.points)
    )
    return [[text for text in texts if text] for texts in found]


def overview(histories: Sequence[History]) -> Table:
    """A line for each history. A shared baseline is in the head of its column."""
    baselines = {one_line(h.baseline) for h in histories}
    is_shared = len(baselines) == 1
    newest = f"against {next(iter(baselines))}" if is_shared else "newest"
    columns = (
        CASE,
        TableColumn("baseline", "words", 8, is_cut=True),
        "history",
        newest,
        VERDICT,
        replace(COMMIT, is_optional=True),
        replace(REMARKS, is_optional=True),
    )
    lines = (_overview_line(h, is_shared) for h in histories)
    table = tabulate(columns, lines, [style(h.points[-1]) for h in histories])
    return table.without_empty_columns(kept=(0, 2, 3, 4, 5, 6))


def _overview_line(h: History, is_shared: bool) -> tuple[str, ...]:
    newest = h.points[-1]
    value = newest.candidate_value
    return (
        one_line(h.case.label),
        "" if is_shared else one_line(h.baseline),
        sparkline(h, BARS if is_shared else BARS_BESIDE_BASELINES).bars,
        interval(newest) if not h.is_counted else "" if value is None else amount(value, h.metric),
        verdict(newest),
        commit(newest),
        f"{size_of(h.changes[-1], h)} from {commit(h.points[h.changes[-1].at])} on" if h.changes else "",
    )


# ---- sentences --------------------------------------------------------------------------------------------------


def describe_changes(h: History) -> Iterable[tuple[str, Style]]:
    """A sentence for each change, the oldest first, and for a newest point that stands out."""
    for change in h.changes:
        yield sentence(change, h), _style(change)
    points = sum(v is not None for v in h.values)
    if not h.changes:
        few = f": {plural(points, 'point')} can show great changes only" if points < FEW and not h.is_counted else ""
        yield f"no change point{few}" if points else "no comparison has a number: the remarks say why", "faint"
    if h.jump is not None:
        newest = commit(h.points[-1])
        yield f"{newest} is {percent(h.jump)} above the median before it: the next comparisons will show", "warning"


def sentence(change: Change, h: History) -> str:
    """from a1b2c3d4 on 12 % slower (p < 0.001); the last before it is 0f9e8d7c"""
    sure = "" if change.p is None else f" (p < {P})"
    at, last = (commit(h.points[place]) for place in (change.at, change.last))
    return f"from {at} on {size_of(change, h)}{sure}; the last before it is {last}"


def size_of(change: Change, h: History) -> str:
    """12 % slower; takes 8 % less time; 2.00 MiB instead of 1.00 MiB"""
    if h.is_counted or change.factor is None:
        return f"{amount(change.after, h.metric)} instead of {amount(change.before, h.metric)}"
    return f"{percent(abs(change.factor - 1))} {'slower' if change.factor > 1 else 'less time'}"


def _style(change: Change) -> Style:
    return "bad" if change.after > change.before else "good"


def commit(c: Comparison) -> str:
    """Returns the first digits of the commit, with + for uncommitted changes, or the candidate's name if there is no
    commit."""
    name = c.candidate
    return name.commit[:8] + ("+" if name.is_dirty else "") if name.commit else one_line(name.label)


# ---- the chart --------------------------------------------------------------------------------------------------


def figure(h: History) -> Any:
    """A matplotlib Figure. Raises `MissingPackage` without matplotlib."""
    return figures.draw(chart(h))


def chart(h: History) -> Chart:
    points = list(_points(h))
    levels = [line for stretch in h.stretches for line in _levels(stretch)]
    rules = [] if h.is_counted else [ReferenceLine("y", 1.0, style="faint")]
    marks: tuple[Mark, ...] = (*points, *levels, *rules, *_changes(h), *_breaks(h))
    title = f"{truncate(h.case.label, LONGEST_TITLE)}: {NAMES[h.metric]} against {truncate(h.baseline, LONGEST_WHY)}"
    changed: dict[int, Style] = {change.at: _style(change) for change in h.changes}
    names = {i: truncate(commit(h.points[i]), LONGEST_NAME) for i in _labelled_positions(h)}
    ticks = tuple(AxisTick(i, name, changed.get(i, "")) for i, name in names.items())
    x = Axis(ends=(-1, len(h.points)), ticks=ticks, are_names=True)
    # A legend with one uninformative word is useless.
    return Chart(x, _values(h), marks, title, has_legend=[p.label for p in points] != ["clear"])


def _points(h: History) -> Iterator[Points]:
    """Those that are clear, those that are not, and those without a value."""
    for label, is_unclear in (("clear", False), ("unclear by itself", True), ("not measured", None)):
        chosen = [
            (i, v, c.low, c.high)
            for i, (c, v) in enumerate(zip(h.points, h.values, strict=True))
            if (None if v is None else c.verdict == "unclear") is is_unclear
        ]
        if chosen:
            style = "faint" if is_unclear is None else ""
            yield place_points(chosen, label=label, style=style, is_hollow=bool(is_unclear))


def _levels(stretch: Stretch) -> Iterator[Line]:
    """One line for each run of neighbours: it leaves out what lies between on another machine."""
    ends = [0, *(i for i, (a, b) in enumerate(pairwise(stretch.places), 1) if b != a + 1), len(stretch.places)]
    for a, b in pairwise(ends):
        first, last = stretch.places[a], stretch.places[b - 1]
        yield Line((first - 0.4, last + 0.4), (stretch.level, stretch.level), style="title")


def _changes(h: History) -> Iterable[ReferenceLine]:
    for change in h.changes:
        text = f"{truncate(commit(h.points[change.at]), LONGEST_NAME)}\n{size_of(change, h)}"
        yield ReferenceLine("x", change.at - 0.5, "change", text, _style(change))


def _breaks(h: History) -> Iterable[ReferenceLine]:
    """Writes words only if there is room for them. If two machines alternate, only the first break has words."""
    free = 0.0
    for found in h.breaks:
        has_room = found.at >= free
        yield ReferenceLine("x", found.at - 0.5, "break", truncate(found.why, LONGEST_WHY) if has_room else "", "faint")
        free = found.at + 0.3 * len(h.points) if has_room else free


def _values(h: History) -> Axis:
    if not h.is_counted:
        return Axis(f"time against {truncate(h.baseline, LONGEST_WHY)}", "change", ends=_span(h))
    counts = sorted({v for v in h.values if v is not None})
    named = counts if len(counts) <= MOST_COUNTS else []
    quantity: Quantity = "bytes" if METRICS[h.metric] == "B" else "flop"
    return Axis(quantity=quantity, ends=_span(h), ticks=tuple(AxisTick(v, amount(v, h.metric)) for v in named))


def _span(h: History) -> tuple[float, float]:
    """Room above for the words; intervals that reach far beyond all ratios are cut off."""
    values = [v for v in h.values if v is not None] or [1.0]
    middle = max(abs(v) for v in values) or 1.0
    reach = max((max(values) - min(values)) / 2, LEAST_SPAN * middle)
    ends = [end for c in h.points for end in (c.low, c.high) if end is not None and not h.is_counted]
    low = max(min([*values, *ends]), min(values) - reach)
    high = min(max([*values, *ends]), max(values) + reach)
    rest = max(0.0, LEAST_SPAN * middle - (high - low)) / 2
    height = high - low + 2 * rest
    return low - rest - 0.18 * height, high + rest + 0.3 * height


def _labelled_positions(h: History) -> list[int]:
    """Places of commits on the axis: the changes, the ends, and as many others as can be read."""
    every = -(-len(h.points) // MOST_NAMES)
    needed = sorted({0, len(h.points) - 1, *(change.at for change in h.changes)})
    others = [i for i in range(0, len(h.points), every) if all(abs(i - place) >= every for place in needed)]
    return sorted([*needed, *others])
