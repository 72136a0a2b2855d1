"""Shows a grid, and ranks its functions: a table of medians, the cells that need a note, and a sentence at the end. A
page also has a heat map.

Only tables are cut, at 60 data points and 12 functions, and they say so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from benchax.clusters.agents import Dispatcher, Node
from benchax.comparing.ranking import Rank, share_places
from benchax.grouping import group_by
from benchax.model import Absent, Estimate
from benchax.printable import list_some
from benchax.reporting.document import (
    Axis,
    AxisTick,
    Cells,
    Chart,
    Document,
    Heading,
    Line,
    Mark,
    Paragraph,
    ReferenceLine,
    Style,
    Table,
    TableCell,
    TableColumn,
    name_places,
    place_points,
    tabulate,
)
from benchax.reporting.tables import ESTIMATE, describe_machine, estimate, one_line, truncate
from benchax.stats.verdicts import grade
from benchax.units import number, percent, plural, seconds

if TYPE_CHECKING:
    from benchax.grids.plan import Label
    from benchax.grids.result import Cell, GridResult

# Draws a grid as lines: the time of each function over the data, with intervals, and the time limit.


def chart_lines(g: GridResult) -> Chart:
    """A line per function over the data, which is a logarithmic axis where its labels are numbers; and the limit."""
    # bool is a subclass of int, but such a label is not a size.
    sizes = [d for d in g.data if isinstance(d, int | float) and not isinstance(d, bool) and 0 < d < math.inf]
    is_of_sizes = len(sizes) == len(g.data) > 1
    places = [float(d) for d in sizes] if is_of_sizes else [float(i) for i in range(len(g.data))]
    order = sorted(range(len(places)), key=places.__getitem__)
    marks = [mark for f in g.functions for mark in _line(g, f, [(places[i], g.data[i]) for i in order])]
    if g.timeout_s is not None:
        limit = f"time limit {seconds(g.timeout_s)}"
        marks.append(ReferenceLine("y", g.timeout_s, "change", limit, "bad"))
    ticks = () if is_of_sizes else tuple(AxisTick(i, one_line(str(d))) for i, d in enumerate(g.data))
    x = Axis(g.axis, is_log=is_of_sizes, ticks=ticks, are_names=not is_of_sizes)
    is_timed = any(isinstance(mark, Line) for mark in marks)  # a logarithm of nothing cannot be drawn
    title = f"time over {g.axis}"
    return Chart(x, Axis("a call", "seconds", is_log=is_timed), tuple(marks), title, has_series=True, is_broad=True)


def _line(g: GridResult, function: str, points: Sequence[tuple[float, Label]]) -> Iterator[Mark]:
    """Cells without a time are marked at the edge, with their status."""
    found = [(place, g.by_key[function, d], g.by_key[function, d].summary_by(g.timer)) for place, d in points]
    known = [(place, s) for place, _, s in found if s is not None]
    if known:
        yield Line(tuple(p for p, _ in known), tuple(s.median_s for _, s in known), function)
    placed = [(place, s and s.median_s, s and s.low_s, s and s.high_s) for place, _, s in found]
    texts = tuple(function if s else cell_text(cell, g.timer) for _, cell, s in found)
    yield place_points(placed, label=function, texts=texts)


MOST_POINTS, MOST_FUNCTIONS, MOST_WORDS = 60, 12, 20
LONGEST_WORD = 300
LONGEST_SIGNATURE = 40
_STYLES: dict[str, Style] = {"ok": "", "timeout": "warning", "not_run": "faint", "interrupted": "faint"}


def document(g: GridResult) -> Document:
    nodes = (tabulate_shares(g.nodes),) if g.nodes else ()
    answer = _ranking(g) or total(g)
    more = [Paragraph(remark) for remark in remarks(g) if remark != answer]
    return Document((Paragraph(answer), table(g), Paragraph(_about(g), "faint"), *nodes, *more))


def table(g: GridResult) -> Table:
    """A row per data point, a column per function; on a page, what befell a cell can be pointed at. While a grid runs,
    the table has what has ended."""
    found = {d: {f: g.by_key[f, d] for f in g.functions if (f, d) in g.by_key} for d in g.data}
    functions, labels = g.functions[:MOST_FUNCTIONS], [d for d in g.data if found[d]][:MOST_POINTS]
    # As the first function had them.
    inputs = {d: next((s for cell in found[d].values() if (s := cell.measurement.signature)), "") for d in labels}
    # A spec is its own signature; a size is not.
    is_shown = any(inputs[d] not in ("", str(d)) for d in labels)
    rows = [
        (
            TableCell(one_line(str(d))),
            *([TableCell(truncate(inputs[d], LONGEST_SIGNATURE), "faint")] if is_shown else []),
            *(
                TableCell(cell_text(cell, g.timer), _STYLES.get(cell.status, "bad"), cell.message)
                if (cell := found[d].get(f))
                else TableCell("")
                for f in functions
            ),
        )
        for d in labels
    ]
    before = (TableColumn(g.axis), *([TableColumn("inputs", is_optional=True)] if is_shown else []))
    return Table((*before, *(TableColumn(one_line(f), least_width=ESTIMATE) for f in functions)), tuple(rows))


def cell_text(cell: Cell, timer: str | None) -> str:
    """58.1 µs ± 1.2 %, as `estimate` writes it; or what became of it."""
    if (summary := cell.summary_by(timer)) is not None:
        return estimate(summary)
    # The message of a status is below the table.
    return "not measured" if cell.status == "ok" else cell.status.replace("_", " ")


def remarks(g: GridResult) -> list[str]:
    """The sentences below the table."""
    parts = (
        _describe_omitted(g), _words(g), _other_timers(g), _differences(g), _warnings(g), _of_nodes(g), _ranking(g),
        total(g),
    )  # fmt: skip
    return [part for part in parts if part]


def _describe_omitted(g: GridResult) -> str:
    parts = []
    if len(g.data) > MOST_POINTS:
        parts.append(f"{MOST_POINTS} of {len(g.data)} data points")
    if len(g.functions) > MOST_FUNCTIONS:
        parts.append(f"{MOST_FUNCTIONS} of {len(g.functions)} functions")
    return f"Shown: {' and '.join(parts)}; .to_pandas(), .to_csv() and .cells have them all." if parts else ""


def _by_message(g: GridResult, found: Iterable[tuple[Cell, str]]) -> list[str]:
    """f[n=4, 8]  message: one line for each function and message, on however many data points."""
    said = group_by(found, lambda each: (each[0].function, truncate(each[1], LONGEST_WORD)))
    return [
        f"{function}[{_points(g, [str(cell.data) for cell, _ in at])}]  {message}"
        for (function, message), at in said.items()
    ]


def _limit(lines: list[str]) -> list[str]:
    return list_some(lines, MOST_WORDS, "lines; .cells has their messages")


def _words(g: GridResult) -> str:
    """The messages of the cells that were not measured."""
    lines = _limit(_by_message(g, ((cell, what) for cell in g.cells if (what := _words_of(g, cell)))))
    reasons = Counter(cell.message for cell in g.cells if cell.status == "not_run")
    return "\n".join([*lines, *(f"{plural(count, 'cell')} {reason}" for reason, count in reasons.items())])


def _other_timers(g: GridResult) -> str:
    """By what else cells were measured, and why some were not: the table is by one timer."""
    if not g.timer:  # then the cells say so themselves
        return ""
    measured = [cell for cell in g.cells if cell.status == "ok"]
    have = Counter(each.timer for cell in measured for each in cell.measurement.samples if each.timer != g.timer)
    counted = [f"{timer} in {n} of {plural(len(g.cells), 'cell')}" for timer, n in have.items()]
    lines = [f"also measured: {', '.join(counted)} (.timings_by({next(iter(have))!r}))"] if have else []
    refused = [
        (cell, f"not by {timer}: {why}") for cell in measured for timer, why in _refusals(cell) if timer != g.timer
    ]
    return "\n".join(_limit(lines + _by_message(g, refused)))


def _refusals(cell: Cell) -> Iterator[tuple[str, str]]:
    """(timer, why it has no readings, or none from some trial on)"""
    for each in cell.measurement.not_measured:
        group, _, timer = each.what.partition(".")
        if group == "samples" and timer and not each.is_by_choice:
            yield timer.partition(",")[0], each.why


def _words_of(g: GridResult, cell: Cell) -> str:
    if cell.status == "ok" and not cell.summary_by(g.timer):
        refused = [f"{timer}: {why}" for timer, why in _refusals(cell) if timer == (g.timer or timer)]
        return "; ".join(refused) or "no readings"
    return "" if cell.status in ("ok", "not_run") else cell.message


def _points(g: GridResult, labels: list[str]) -> str:
    if len(labels) == len(g.data) > 1:
        return f"all {g.axis}"
    return f"{g.axis}={truncate(', '.join(labels), 60)}"


def _differences(g: GridResult) -> str:
    """Which functions give another answer than the reference, and how far off at most."""
    lines = []
    for function in g.functions:
        found = [g.by_key[function, d].agreement for d in g.data]
        trials = [each for one in found if not isinstance(one, Absent) for each in one]
        differing = [each for each in trials if not each.agrees]
        if differing:
            far = [each.max_rel for each in differing if each.max_rel is not None]
            most = f", by up to {number(max(far))} times its largest value" if far else ""
            many = f"{len(differing)} of {len(trials)} trials" if len(trials) > 1 else "1 trial"
            lines.append(f"{function} returns a different result from {g.reference} in {many}{most}")
    return "\n".join(lines)


def _warnings(g: GridResult) -> str:
    """Reasons to doubt times, once for all cells that they affect. A busy machine is named once for the whole grid."""
    busy = [cell.measurement.noise for cell in g.cells if any(r.code == "busy" for r in cell.measurement.remarks)]
    doubted = [(cell, r) for cell in g.cells for r in cell.measurement.remarks if r.severity != "info"]
    lines = _by_message(g, ((cell, remark.message) for cell, remark in doubted if remark.code != "busy"))
    if busy:
        most = max((noise.others_share or 0.0 for noise in busy if noise), default=0.0)
        where = f"{len(busy)} of {plural(len(g.cells), 'cell')}"
        others = f"other processes used up to {percent(most)} of the CPU"
        lines.append(f"the machine was busy in {where}: {others}; benchax doctor says more")
    return "\n".join(lines)


def _of_nodes(g: GridResult) -> str:
    """The reasons why times of several nodes in one table cannot be compared."""
    split = [str(label) for label in g.data if len(environments(g, label)) > 1]
    at = f"{g.axis}={truncate(', '.join(split), 60)}"
    lines = [f"{at} was measured on several nodes: its functions are not ranked"] if split else []
    for what, values in differing([share.node for share in g.nodes]).items():
        lines.append(f"the nodes differ in {what}: {', '.join(values)}; compare functions within a row only")
    return "\n".join(lines)


def _ranking(g: GridResult) -> str:
    """Who is the fastest, where several have a place."""
    if any(len(places) > 1 for places in g.ranking.by_data.values()):
        return ranking_text(g.ranking, g.axis)
    is_for_results = any(cell.status == "ok" and is_wrong(cell) for cell in g.cells)
    return "no ranking: no two functions gave the same result; compare=False ranks them all" if is_for_results else ""


def ranking_text(ranking: GridRanking, axis: str) -> str:
    """fastest: f1 (n=4, 64); f1 or f3, not told apart (n=1024)"""
    winners: dict[tuple[str, ...], list[str]] = {}
    for label, places in ranking.by_data.items():
        # Functions that share a place come in any order.
        if first := tuple(sorted(each.label for each in places if each.place == 1)):
            winners.setdefault(first, []).append(str(label))
    parts = [
        f"{' or '.join(names)}{', not told apart' * (len(names) > 1)} ({axis}={truncate(', '.join(at), 60)})"
        for names, at in winners.items()
    ]
    lines = [f"fastest: {'; '.join(parts)}"]
    if len(ranking.compared) > 1 and len(ranking.overall) > 1:
        held = Counter(one.place for one in ranking.overall)
        places = [f"{one.place}{'=' * (held[one.place] > 1)}. {_multiple(one)}" for one in ranking.overall]
        each = ", ".join(places)
        left = f"; not ranked: {', '.join(ranking.without)}" if ranking.without else ""
        mean = f"geometric mean of {len(ranking.compared)} data points"
        lines.append(f"as a multiple of the fastest ({mean}): {each}{left}")
    return "\n".join(lines)


def _multiple(rank: Rank) -> str:
    """adamw 1.53 (1.51 – 1.60)"""
    ratio = Estimate(rank.ratio or 1.0, rank.low, rank.high)
    return f"{rank.label} {ratio.text()}" + ("" if ratio.text_of_ends() else " (no interval)")


def total(g: GridResult) -> str:
    """27 cells took 4.21 seconds: 25 ok, 1 timeout, 1 crashed."""
    counted = Counter(cell.status.replace("_", " ") for cell in g.cells)
    became = ", ".join(f"{n} {status}" for status, n in counted.most_common())
    return f"{plural(len(g.cells), 'cell')} took {g.elapsed_s:.2f} seconds: {became}"


def document_with_chart(g: GridResult) -> Document:
    """For a notebook."""
    return Document((*document(g).blocks, chart(g)))


def document_for_page(g: GridResult) -> Document:
    """The contents of `print`, with the grid as lines over its data and as a heat map."""
    title = Heading(g.name, 1, (_about(g),))
    drawn = (chart_lines(g), replace(chart(g), title="median time of a call"))
    return Document((title, table(g), *drawn, *map(Paragraph, remarks(g))))


def chart(g: GridResult) -> Chart:
    """A line per function, a column per data point."""
    lines = [[(cell := g.by_key[f, d], cell.summary_by(g.timer)) for d in g.data] for f in g.functions]
    cells = Cells(
        tuple(tuple(s and s.median_s for _, s in line) for line in lines),
        tuple(tuple("" if s else cell_text(cell, g.timer) for cell, s in line) for line in lines),
        tuple(tuple(_STYLES.get(cell.status, "bad") for cell, _ in line) for line in lines),
    )
    by = f" by the {g.timer} timer" if g.timer else ""
    title = f"{g.name}: median time of a call{by}, {plural(g.trials, 'trial')}\n{_machine(g)}"
    return Chart(name_places(list(map(str, g.data)), g.axis), name_places(g.functions), (cells,), title)


def _about(g: GridResult) -> str:
    """By which timer, and where."""
    by = f" by {g.timer}" if g.timer else ""
    return f"median time of a call{by} · {plural(g.trials, 'trial')} · {_machine(g)}"


def _machine(g: GridResult) -> str:
    machine = describe_machine(g.measurements[0].environment)
    return f"{machine} · {plural(len(g.nodes), 'node')}" if g.nodes else machine


# ---- who measured what: a line for each node of a run that was spread over several -----------------------------------


@dataclass(frozen=True)
class NodeShare:
    """Facts about a node, and the work that it did."""

    node: Node
    done: int
    """Calls that it has ended."""
    lost: str = ""
    """Why it is no longer there; empty if it is."""


def shares(dispatcher: Dispatcher[Any] | None) -> tuple[NodeShare, ...]:
    """Returns the shares of all nodes, in the order of their names; empty if only this program's own pool worked."""
    if dispatcher is None:
        return ()
    found = [
        NodeShare(node, dispatcher.done[id], dispatcher.lost.get(id, ""))
        for id, node in dispatcher.seen.items()
        if node.examination is not None
    ]
    return tuple(sorted(found, key=lambda share: share.node.label))


def tabulate_shares(found: Sequence[NodeShare]) -> Table:
    """node · cells · speed · noise · CPU"""
    known = [(share, share.node.environment, share.node.examination) for share in found if share.node.examination]
    best_s = min((examination.pace_s for _, _, examination in known), default=0.0)
    rows: list[tuple[str, ...]] = []
    for share, environment, examination in known:
        effect = examination.smallest_effect
        noise = "not measured" if effect is None else f"{grade(effect)}: finds {percent(effect)}"
        is_cpu = environment.backend == "cpu" and environment.processor
        machine = (not is_cpu and environment.device_kind) or environment.processor or environment.os
        speed = f"{number(best_s / examination.pace_s)} ×"
        lost = f"lost: {share.lost}" if share.lost else ""
        rows.append((share.node.label, str(share.done), speed, noise, machine, environment.jax or "none", lost))
    return tabulate(("node", "cells", "speed", "noise", "machine", "jax", ""), rows)


def differing(nodes: Sequence[Node]) -> Mapping[str, Sequence[str]]:
    """The values that are not the same on all nodes (versions, backend, processor): {what: values}."""
    facts = ("python", "jax", "jaxlib", "numpy", "backend", "device_kind", "processor")
    values = {fact: sorted({str(getattr(node.environment, fact)) for node in nodes}) for fact in facts}
    return {fact: found for fact, found in values.items() if len(found) > 1}


# ---- ranking ---------------------------------------------------------------------------------------------------------
#
# Ranks the functions of a grid: on each data point, and over all.
#
# A function has a place if it finished and gave the result of the reference. Functions whose intervals overlap share a
# place. Cells are measured one after the other, so the machine can cause a difference within their intervals. Pairs
# show smaller differences (`benchax compare`).
#
# The overall ranking uses the geometric mean of a function's time as a multiple of the fastest one on each data point.
# So all data points count equally. The ends of its interval are the geometric means of the ends.


@dataclass(frozen=True)
class GridRanking:
    """Who is the fastest."""

    by_data: Mapping[Label, tuple[Rank, ...]]
    """Fastest first; empty if no function has a place."""
    overall: tuple[Rank, ...]
    """The places of the functions that have a place on every data point that is in `compared`."""
    compared: tuple[Label, ...]
    """The data points on which any function has a place."""
    without: tuple[str, ...]
    """Functions without a place over all: they failed somewhere, or gave another result."""


def rank(g: GridResult) -> GridRanking:
    """Ranks the functions by their medians, with the grid's `timer`."""
    by_data = {label: _rank_point(g, label) for label in g.data}
    compared = tuple(label for label, places in by_data.items() if places)
    found = {f: [p for label in compared for p in by_data[label] if p.label == f] for f in g.functions}
    overall = _ranks([(f, None, _mean(ranks)) for f, ranks in found.items() if ranks and len(ranks) == len(compared)])
    ranked = {rank.label for rank in overall}
    return GridRanking(by_data, overall, compared, tuple(f for f in g.functions if f not in ranked))


def _rank_point(g: GridResult, label: Label) -> tuple[Rank, ...]:
    if len(environments(g, label)) > 1:
        return ()
    cells = [(f, g.by_key[f, label]) for f in g.functions]
    found = [(f, s) for f, cell in cells if (s := cell.summary_by(g.timer)) is not None and not is_wrong(cell)]
    times = [(f, Estimate(s.median_s, s.low_s, s.high_s)) for f, s in found if s.median_s > 0]
    best_s = min((time.value for _, time in times), default=1.0)
    return _ranks([(f, time.value, time.map(lambda seconds: seconds / best_s)) for f, time in times])


def environments(g: GridResult, label: Label) -> set[str]:
    """The fingerprints of where this data point was measured: of several, times are not put side by side. There are
    several only where a node was lost, or a grid was gone on with elsewhere."""
    cells = (g.by_key[f, label] for f in g.functions)
    return {cell.measurement.environment.fingerprint for cell in cells if cell.status == "ok"}


def _mean(ranks: Sequence[Rank]) -> Estimate:
    """Over data points."""
    lows, highs = [rank.low for rank in ranks], [rank.high for rank in ranks]
    middle = geometric_mean([rank.ratio for rank in ranks if rank.ratio])
    return Estimate(middle, _mean_of_ends(lows), _mean_of_ends(highs))


def _mean_of_ends(values: Sequence[float | None]) -> float | None:
    """None if one of them is not known, or not above zero, as the lower end of a net time may be."""
    known = [value for value in values if value is not None and value > 0]
    return geometric_mean(known) if len(known) == len(values) else None


def _ranks(found: Sequence[tuple[str, float | None, Estimate]]) -> tuple[Rank, ...]:
    """Ranks (label, seconds, ratio): those that overlap with the first of a place share it."""
    order = sorted(found, key=lambda each: each[2].value)
    # Without an interval, the error of a median is unknown.
    ends = [(0.0 if e.low is None else e.low, math.inf if e.high is None else e.high) for _, _, e in order]
    places = share_places(ends, lambda first, one: one[0] > first[1])
    return tuple(
        Rank(place, label, time_s, ratio.value, ratio.low, ratio.high)
        for place, (label, time_s, ratio) in zip(places, order, strict=True)
    )


def is_wrong(cell: Cell) -> bool:
    """Did it give another result than the reference in any trial?"""
    return not isinstance(cell.agreement, Absent) and not all(each.agrees for each in cell.agreement)
