"""Comparisons in words and tables: who is faster, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchax.comparing.gate import amount
from benchax.comparing.history import is_counted
from benchax.comparing.judging import blind_spot
from benchax.comparing.ranking import Comparisons, Rank
from benchax.errors import UsageError
from benchax.model import Comparison, Method, Metric, Remark
from benchax.reporting import figures
from benchax.reporting.chart import Axis, AxisTick, Chart, Mark, Note, Points, ReferenceLine, Shade, Symbol, name_places
from benchax.reporting.document import (
    Document,
    Heading,
    Paragraph,
    Style,
    Table,
    TableColumn,
    list_lines,
    list_remarks,
    tabulate,
)
from benchax.reporting.tables import (
    CASE,
    VERDICT,
    VERDICT_STYLES,
    cut_middle,
    describe_machine,
    each_once,
    one_line,
    share_remarks,
    truncate,
)
from benchax.stats.verdicts import Verdict, grade
from benchax.units import change, percent, plural

ADVICE = "advice"
TIMERS: dict[Method, str] = {
    "one process": "wall, paired: the versions alternate in one process",
    "process pairs": "wall, paired: whole processes alternate on one core",
}
OF_A_CASE = ("outputs-differ", "nonfinite-result", "no-outputs", "recompiled", "alone-differs", ADVICE)
"""Remarks that are about one case."""
COLUMN = 24
"""Longest name of a column, which is never folded: a long one would leave no room for the numbers."""
MOST_NAMED = 2
"""A reason that holds for more cases than this names some, and counts the others."""
COLUMNS: tuple[Metric, ...] = ("run", "compile", "peak")
"""Metrics that have columns, where functions are compared; the others have sentences."""
NAMES: dict[Metric, str] = {
    "run": "run",
    "compile": "compiling",
    "peak": "peak memory",
    "constants": "constants",
    "flops": "operations",
}
IN_MANY = {"error": "failed", "timeout": "timed out"}
"""Verdicts in words that fit one case and many."""
COUNTED = {"faster": "less", "slower": "more", "same": "same", "unclear": "unclear"}


def document(found: Comparisons, has_asides: bool = True) -> Document:
    """`has_asides`: also what is about no comparison, which a command line has said before."""
    # For functions: each next to the baseline, and their ranks. For several cases: one line per case.
    ranks = [ranking_grid(found)] if found.labels and len(found.ranking) > 1 else []
    said = [Paragraph(text) for text in [describe(found)] if text]
    details = (*heading(found).split("\n"), sight(found), blind_spot(found))
    return Document(
        (
            *said,
            function_grid(found) if found.labels else case_grid(found),
            *ranks,
            *list_lines([*reasons(found), *others(found)]),
            *list_lines((line for line in details if line), "faint"),
            *list_remarks(remarks(found)),
            *list_lines(found.asides if has_asides else ()),
        )
    )


def heading(found: Comparisons) -> str:
    """Returns what was compared, on which inputs, where, by which timer, and from how much data."""
    first = next((c for c in found if c.blocks), None)
    if first is None or first.environment is None:
        return ""
    inputs = first.signature if len({c.signature for c in found.of("run")}) == 1 else ""
    line = describe_machine(first.environment)
    if found.labels:
        # A case has the name of a function, unless another was given: that says nothing where functions are listed.
        name = "" if first.case.name in found.labels else f"{first.case.label}: "
        processes = f"{first.processes} process{'es' * (first.processes != 1)}"
        line = f"{name}{line} · {plural(first.pairs, 'pair')} in {processes}"
    return "\n".join(filter(None, (line, inputs, TIMERS.get(first.method, ""))))


def sight(found: Comparisons) -> str:
    """How small a change would have been found, and the grades of that (`stats.verdicts.grade`)."""
    effects = sorted(c.smallest_effect for c in found.of("run") if c.smallest_effect is not None)
    if not effects:
        return ""
    grades = dict.fromkeys(map(grade, (effects[0], effects[-1])))
    least, most = (percent(effect) for effect in (effects[0], effects[-1]))
    sizes = least if least == most else f"{least} to {most}"
    return f"noise grade {' to '.join(grades)}: changes of {sizes} would have been found in 80 % of cases"


def function_grid(found: Comparisons) -> Table:
    """One line per function, compared with the baseline. The table omits a column that no function fills."""
    baseline, *candidates = found.labels
    columns = (
        CASE,
        "time",
        f"against {truncate(baseline, COLUMN)}",
        VERDICT,
        *(TableColumn(name, is_optional=True) for name in ("result", "compile", "peak")),
    )
    lines = [_baseline_line(found), *(_function_line(found, label) for label in candidates)]
    runs = {c.candidate.label: c for c in found.of("run")}
    styles: list[Style] = ["", *("bad" if label in found.unranked else style(runs[label]) for label in candidates)]
    return tabulate(columns, lines, styles).without_empty_columns()


def style(c: Comparison) -> Style:
    return "bad" if c.differs else VERDICT_STYLES[c.verdict]


def _baseline_line(found: Comparisons) -> tuple[str, ...]:
    run, *others = [_describe_known((c.baseline_value for c in found.of(metric)), metric) for metric in COLUMNS]
    why = "" if run else "not measured, because nothing else ran with it"
    return (found.labels[0], run, "baseline", why, "", *others)


def _function_line(found: Comparisons, label: str) -> tuple[str, ...]:
    of = {c.metric: c for c in found if c.candidate.label == label}
    run, *others = [_describe_known((of[m].candidate_value,) if m in of else (), m) for m in COLUMNS]
    against, result = of["run"], ""
    if (n := against.numerics) is not None:
        # Results that agree can still differ by as much as is shown; a remark tells how far others are apart.
        agreed = f"agrees to {n.max_rel:.1e}" if n.max_rel else "equal"
        result = "differs" if against.differs else agreed
    return (label, run, interval(against), sure_verdict(against), result, *others)


def _describe_known(values: Iterable[float | None], metric: Metric) -> str:
    value = next((value for value in values if value is not None), None)
    return "" if value is None else amount(value, metric)


def ranking_grid(found: Comparisons) -> Table:
    """Places, and times as those of the fastest, of the pairs of each with it."""
    places = [rank.place for rank in found.ranking]
    marked = [f"{place}=" if places.count(place) > 1 else str(place) for place in places]
    times = ["1", *map(_multiple, found.ranking[1:])]
    lines = [(place, rank.label, time) for place, rank, time in zip(marked, found.ranking, times, strict=True)]
    return tabulate(("place", CASE, "times the fastest"), lines)


def _multiple(rank: Rank) -> str:
    """1.53 (1.51 – 1.60)"""
    return rank.estimate.text() if rank.estimate else "not compared"


def case_grid(found: Comparisons) -> Table:
    """One line for each comparison of run times, or for a case without one. Inputs have a column if they differ;
    otherwise they are above the table."""
    runs = found.of("run")
    are_alike = len({c.signature for c in runs}) == 1
    lines = [
        (
            one_line(c.case.label),
            _describe_known((c.baseline_value,), c.metric),
            _describe_known((c.candidate_value,), c.metric),
            interval(c),
            sure_verdict(c),
            "" if are_alike else truncate(c.signature, COLUMN),
        )
        for c in runs
    ]
    names = {(c.baseline.label, c.candidate.label) for c in runs}
    sides = names.pop() if len(names) == 1 else ("baseline", "candidate")
    inputs = TableColumn("inputs", "words", 10, is_optional=True)
    columns = (CASE, *(truncate(name, COLUMN) for name in sides), "change", VERDICT, inputs)
    table = tabulate(columns, lines, [style(c) for c in runs])
    return table.without_empty_columns(kept=range(len(columns) - 1))


def interval(c: Comparison) -> str:
    """+3.2 % (+2.1 to +4.4 %)"""
    if c.ratio is None:
        return ""
    if c.low is None or c.high is None:
        return change(c.ratio)
    return f"{change(c.ratio)} ({change(c.low).removesuffix(' %')} to {change(c.high)})"


def verdict(c: Comparison) -> str:
    """In a word or two. The result comes first, if it differs: what a time is worth depends on it."""
    if c.failure is not None:
        return c.failure.kind.replace("_", " ")
    if c.ratio is None and c.verdict == "unclear":
        return "no verdict"
    said = COUNTED[c.verdict] if is_counted(c.metric) else c.verdict
    return f"result differs ({said})" if c.differs and c.metric == "run" else said


def sure_verdict(c: Comparison) -> str:
    """slower, confirmed: a second measurement says so too."""
    return f"{verdict(c)}, confirmed" if c.confirmed and not c.differs else verdict(c)


def verdict_with_reason(c: Comparison) -> str:
    """same: within 5.0 %; the reason of a failure begins with what it is."""
    return ": ".join(filter(None, ("" if c.failure is not None and c.why else sure_verdict(c), c.why)))


def reasons(found: Comparisons) -> list[str]:
    """Why verdicts are what they are, each reason once: third and 2 more: within 5.0 %."""
    told, unranked = dict[str, list[str]](), found.unranked
    for c in found.of("run"):
        name = c.candidate.label if found.labels else c.case.label
        is_stopped = c.failure is not None and not found.is_at_fault(c)  # by the failure of another one
        if why := unranked.get(name, c.why) if is_stopped else c.why:
            told.setdefault(why, []).append(name)
    return [f"{_join_few(names)}: {why}" for why, names in told.items()]


def _join_few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return _join_names(names) if more <= 1 else f"{', '.join(names[:MOST_NAMED])} and {more} more"


def others(found: Comparisons) -> list[str]:
    """Returns the changes that have no column. It omits changes of a few bytes, which would read as 240 KiB
    and 240 KiB."""
    changed = [
        c
        for c in found
        if c.metric != "run"
        and c.verdict in ("slower", "faster")
        and (c.method != "counted" or len(set(_amounts(c))) != 1)
    ]
    if not found.labels:
        return [sentence(c) for c in changed]
    return [_of_functions(found, metric) for metric in NAMES if metric in {c.metric for c in changed} - set(COLUMNS)]


def _amounts(c: Comparison) -> list[str]:
    """Those that are known: the baseline's, the candidate's."""
    return [amount(value, c.metric) for value in (c.baseline_value, c.candidate_value) if value is not None]


def _of_functions(found: Comparisons, metric: Metric) -> str:
    """constants: 4 B in naive, 1.00 KiB in fused"""
    compared = found.of(metric)
    values = [(compared[0].baseline, compared[0].baseline_value), *((c.candidate, c.candidate_value) for c in compared)]
    counted = ", ".join(f"{amount(v, metric)} in {version.label}" for version, v in values if v is not None)
    once = " (XLA's count: the body of a loop once)" if metric == "flops" else ""
    return f"{NAMES[metric]}: {counted}{once}"


def sentence(c: Comparison) -> str:
    """peak memory of fused: 2.00 MiB where naive has 1.00 MiB"""
    what, known = f"{NAMES[c.metric]} of {c.case.label}", _amounts(c)
    if c.method == "counted" and len(known) == 2:
        return f"{what}: {known[1]} in {c.candidate.label}, {known[0]} in {c.baseline.label}"
    return f"{what}: {c.candidate.label} {verdict_with_reason(c)}, {interval(c)}"


def summary(found: Comparisons) -> str:
    """fused is fastest; naive takes 1.53 (1.51 – 1.60) times as long. short has no place: its result differs."""
    return " ".join(filter(None, (_places(found.ranking), *_without_place(found))))


def describe(found: Comparisons) -> str:
    """In one line: who is fastest, the verdict of the only case, or how many cases have each: 3 same, 1 slower"""
    runs = found.of("run")
    if said := summary(found):
        return said
    if len(runs) == 1:
        name = runs[0].candidate.label if found.labels else runs[0].case.label
        return ", ".join(filter(None, (f"{name}: {sure_verdict(runs[0])}", interval(runs[0]))))
    kinds = Counter("with another result" if c.differs else verdict(c) for c in runs)
    return ", ".join(f"{n} {IN_MANY.get(kind, kind)}" for kind, n in kinds.items())


def _places(ranking: Sequence[Rank]) -> str:
    if len(ranking) < 2:
        return ""
    first, *others = ranking
    together = [rank.label for rank in others if rank.place == first.place]
    begin = f"{_join_names([first.label, *together])} {'are' if together else 'is'} fastest"
    tie = ", and cannot be distinguished" if together else ""
    slower = [f"{rank.label} takes {_multiple(rank)} times as long" for rank in others if rank.place != first.place]
    return f"{begin}{tie}" + (f"; {'; '.join(slower)}." if slower else ".")


def _without_place(found: Comparisons) -> Iterator[str]:
    """Names the functions without a rank. The table and the remarks give the full reasons."""
    without = [c for c in found.of("run") if c.candidate.label in found.unranked] if found.labels else []
    if wrong := [c.candidate.label for c in without if c.failure is None and c.ratio is not None]:
        baseline = found.labels[0]
        yield f"{_join_names(wrong)} {_have(wrong)} no place: another result than {baseline}."
        if len(found.ranking) == 1:
            yield f"If {baseline} is the one that is wrong, make another the baseline."
    if failed := [c.candidate.label for c in without if found.is_at_fault(c)]:
        yield f"{_join_names(failed)} failed and {_have(failed)} no place."


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def remarks(found: Iterable[Comparison]) -> list[Remark]:
    """Returns each remark once, with its case if there are several, and advice about failures."""
    by_case: dict[str, list[Remark]] = {}
    for c in found:
        listed = by_case.setdefault(c.case.label, [])
        listed += c.remarks
        if c.failure and c.failure.advice:
            listed.append(Remark(ADVICE, "info", c.failure.advice))
    if len(by_case) == 1:
        return each_once(*by_case.values())
    shared = share_remarks(by_case, apart=OF_A_CASE)
    named = [
        replace(r, message=f"{label}: {r.message}") if r.code in OF_A_CASE else r
        for label, own in shared.own.items()
        for r in own
    ]
    return [*shared.common, *each_once(named)]


LOOKS: dict[Verdict, tuple[Style, Symbol]] = {
    "faster": ("good", "left"),
    "slower": ("bad", "right"),
    "same": ("", "circle"),
    "unclear": ("faint", "diamond"),
}
LONGEST_NAME = 36
"""The labels of a chart have room for this many characters."""
MOST_WORDS = 60
"""Charts with up to this many lines show the numbers next to each line."""
LEAST_SPAN = 1.10
"""The axis shows at least this factor to both sides of 1, so that noise does not fill it."""
MOST_SPAN = 3.0
"""Intervals that reach further than this factor beyond all ratios are cut off, with an arrow."""


def figure(found: Comparisons) -> Any:
    """A matplotlib Figure of the run times.

    Raises:
        UsageError: there is no comparison of run times.
        MissingPackage: matplotlib is not installed.
    """
    return figures.draw(chart(found))


def document_with_chart(found: Comparisons) -> Document:
    """For a page: what a terminal shows, and the chart below it."""
    return Document((*document(found).blocks, *([chart(found)] if found.of("run") else [])))


def document_for_page(found: Comparisons) -> Document:
    """The chart first, under a heading."""
    if not found.of("run"):
        return Document((Heading("Comparison", 1), *document(found).blocks))
    drawn = chart(found)
    title = drawn.title.partition("\n")[0]
    # The heading says what the title of a figure says.
    ratios = replace(drawn, title="ratios with their 95 % intervals")
    return Document((Heading(title[:1].upper() + title[1:], 1), ratios, *document(found).blocks))


def chart(found: Comparisons) -> Chart:
    """Raises `UsageError` if there is no comparison of run times."""
    runs = found.of("run")
    if not runs:
        raise UsageError("there is nothing to draw", "comparisons of run times")
    low, high = _span(runs)
    baselines, resolutions = {c.baseline.label for c in runs}, {c.resolution for c in runs}
    against = _shorten_name(baselines.pop()) if len(baselines) == 1 else "the baseline"
    title, shades = f"← faster    as fast as {against}    slower →", list[Mark]()
    if len(resolutions) == 1:
        within = resolutions.pop()
        title += f"   (grey: same, within {percent(within)})"
        shades.append(Shade("x", 1 / (1 + within), 1 + within))
    places = tuple(AxisTick(place, change_name(place)) for place in ticks(low, high))
    has_words = len(runs) <= MOST_WORDS
    beside = tuple(AxisTick(i, words(c), LOOKS[c.verdict][0]) for i, c in enumerate(runs))
    return Chart(
        Axis(title, "change", is_log=True, ends=(low, high), ticks=places),
        name_places(names(runs)),
        (*shades, ReferenceLine("x", 1.0, style="title"), *_marks(runs)),
        title=_title(found, runs, against),
        beside=beside if has_words else (),
        has_legend=not has_words,
    )


def _marks(runs: Sequence[Comparison]) -> Iterator[Mark]:
    """The comparisons of each verdict together, and a word for those without a ratio."""
    for verdict, (style, symbol) in LOOKS.items():
        known = [(i, c) for i, c in enumerate(runs) if c.verdict == verdict and c.ratio is not None]
        if known:
            places, values = tuple(i for i, _ in known), tuple(c.ratio for _, c in known)
            ends = tuple(None if c.low is None or c.high is None else (c.low, c.high) for _, c in known)
            yield Points(places, values, ends, "x", verdict, style, symbol, is_hollow=verdict == "unclear")
    yield from (Note(1, i, "not measured", "faint") for i, c in enumerate(runs) if c.ratio is None)


def _span(runs: Sequence[Comparison]) -> tuple[float, float]:
    """The ends of the axis: all ratios, and of their intervals as much as leaves the ratios readable."""
    ratios = [1.0, *(c.ratio for c in runs if c.ratio)]
    all_ends = [*ratios, *(end for c in runs if c.ratio for end in (c.low, c.high) if end)]
    low, high = max(min(all_ends), min(ratios) / MOST_SPAN), min(max(all_ends), max(ratios) * MOST_SPAN)
    room = (high / low) ** 0.04
    return min(low / room, 1 / LEAST_SPAN), max(high * room, LEAST_SPAN)


def ticks(low: float, high: float) -> list[float]:
    """Round places of a logarithmic axis, 1 among them: about six, whether it spans 20 % or a factor of 1000."""
    half = max(math.log(high), -math.log(low))
    if half > math.log(2.5):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        digits = (1, 2, 5) if half < math.log(100) else (1,)
        places = [digit * 10.0**decade for decade in decades for digit in digits]
    elif half > math.log(1.5):
        places = [0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 2.5]
    else:
        step = next(s for s in (0.02, 0.05, 0.1, 0.2) if half / s <= 4 or s == 0.2)
        places = [1 + step * i for i in range(-10, 11) if 1 + step * i > 0]
    return [place for place in places if low <= place <= high]


def change_name(ratio: float) -> str:
    """+5 % of 1.05, up to a factor of 2; beyond that × 2, and × 0.2"""
    if 0.5 < ratio < 2:
        return f"{100 * (ratio - 1):+.0f} %" if abs(ratio - 1) > 1e-9 else "1"
    return f"× {ratio:g}"


def names(runs: Sequence[Comparison]) -> list[str]:
    """Returns labels that distinguish the lines: the candidates of one case, otherwise the cases, and if needed
    both."""
    cases, candidates = {c.case for c in runs}, {c.candidate.label for c in runs}
    if len(cases) == 1 and len(candidates) == len(runs):
        listed = [c.candidate.label for c in runs]
    else:
        both = len(candidates) > 1
        listed = [f"{c.case.label}: {c.candidate.label}" if both else c.case.label for c in runs]
    return list(map(_shorten_name, listed))


def words(c: Comparison) -> str:
    """slower  +3.2 % (+2.1 to +4.4 %); from a factor of 2 on: result differs (faster)  × 0.062 (0.058 – 0.067)"""
    said = verdict(c)
    if c.estimate is None or 0.5 < c.estimate.value < 2:
        return f"{said}  {interval(c)}".rstrip()
    return f"{said}  × {c.estimate.text()}"


def _title(found: Comparisons, runs: Sequence[Comparison], against: str) -> str:
    """Names the compared versions, then the machine, the inputs and the timer, as above the table."""
    candidates = {c.candidate.label for c in runs}
    is_of_functions = runs[0].case.name in found.labels
    case = "" if is_of_functions or len({c.case for c in runs}) > 1 else f"{_shorten_name(runs[0].case.label)}: "
    who = f" of {_shorten_name(candidates.pop())}" if len(candidates) == 1 else ""
    return "\n".join(filter(None, (f"{case}run time{who} against {against}", heading(found))))


def _shorten_name(name: str) -> str:
    return cut_middle(one_line(name), LONGEST_NAME)
