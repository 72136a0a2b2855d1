"""Comparisons in words and tables: who is faster, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from benchax.comparing.error_rates import UNCHANGED, ErrorRates, Tally, planted_name
from benchax.comparing.gate import amount
from benchax.comparing.history import is_counted
from benchax.comparing.judging import blind_spot
from benchax.comparing.ranking import Comparisons, Rank
from benchax.errors import UsageError
from benchax.grouping import group_by
from benchax.model import Comparison, Method, Metric, Remark
from benchax.reporting import figures
from benchax.reporting.document import (
    Axis,
    AxisTick,
    Chart,
    Document,
    Heading,
    Mark,
    Note,
    Paragraph,
    ReferenceLine,
    Shade,
    Style,
    Symbol,
    Table,
    TableColumn,
    list_lines,
    list_remarks,
    name_places,
    place_points,
    tabulate,
)
from benchax.reporting.tables import (
    CASE,
    VERDICT,
    VERDICT_STYLES,
    cut_middle,
    describe_machine,
    each_once,
    join_names,
    name_device,
    one_line,
    share_remarks,
    truncate,
)
from benchax.stats.verdicts import Verdict, grade
from benchax.units import change, number, percent, plural, seconds

ADVICE = "advice"
TIMERS: dict[Method, str] = {
    "one process": "wall, paired: the versions run alternately in one process",
    "process pairs": "wall, paired: whole processes run alternately on one core",
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
    "run": "run time",
    "compile": "time to compile",
    "peak": "planned peak",
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
        # A case has the name of its function unless the user gave another. In a list of functions, it adds nothing.
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
        f"against {cut_middle(one_line(baseline), COLUMN)}",
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
    against = of["run"]
    return (label, run, interval(against), sure_verdict(against), _describe_result(against), *others)


def _describe_result(c: Comparison) -> str:
    if c.numerics is None or c.differs:
        return "differs" if c.numerics else ""
    # Results that agree can still differ by the amount shown. A remark reports larger differences.
    return f"agrees to {c.numerics.max_rel:.1e}" if c.numerics.max_rel else "equal"


def _describe_known(values: Iterable[float | None], metric: Metric) -> str:
    return next((amount(value, metric) for value in values if value is not None), "")


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
    return "" if c.ratio is None else change(c.ratio, c.low, c.high)


def verdict(c: Comparison) -> str:
    """In a word or two. The result comes first, if it differs: what a time is worth depends on it."""
    if c.failure is not None:
        return c.failure.words
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
    unranked, told = found.unranked, list[tuple[str, str]]()
    for c in found.of("run"):
        name = c.candidate.label if found.labels else c.case.label
        is_stopped = c.failure is not None and not found.is_at_fault(c)  # by the failure of another one
        told.append((unranked.get(name, c.why) if is_stopped else c.why, name))
    return [
        f"{_join_few([name for _, name in named])}: {why}"
        for why, named in group_by(told, lambda each: each[0]).items()
        if why
    ]


def _join_few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return join_names(names if more <= 1 else [*names[:MOST_NAMED], f"{more} more"])


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
    return f"{NAMES[metric]}: {counted}"


def sentence(c: Comparison) -> str:
    """planned peak of f: 2.00 MiB in fused, 1.00 MiB in naive"""
    what, known = f"{NAMES[c.metric]} of {c.case.label}", _amounts(c)
    if c.method == "counted" and len(known) == 2:
        return f"{what}: {known[1]} in {c.candidate.label}, {known[0]} in {c.baseline.label}"
    return f"{what}: {c.candidate.label} {verdict_with_reason(c)}, {interval(c)}"


def summary(found: Comparisons) -> str:
    """fused is fastest; naive takes 1.53 (1.51 – 1.60) times as long. Not ranked: short failed."""
    return " ".join(filter(None, (_places(found.ranking), *_without_place(found))))


def describe(found: Comparisons) -> str:
    """In one line: who is fastest, the verdict of the only case, or how many cases have each: 3 same, 1 slower"""
    runs = found.of("run")
    if said := summary(found):
        return said
    if len(runs) == 1:
        name = runs[0].candidate.label if found.labels else runs[0].case.label
        return ", ".join(filter(None, (f"{name}: {sure_verdict(runs[0])}", interval(runs[0]))))
    kinds = Counter("with a different result" if c.differs else verdict(c) for c in runs)
    return ", ".join(f"{n} {IN_MANY.get(kind, kind)}" for kind, n in kinds.items())


def _places(ranking: Sequence[Rank]) -> str:
    if len(ranking) < 2:
        return ""
    first, *others = ranking
    together = [rank.label for rank in others if rank.place == first.place]
    tie = "are fastest, and cannot be distinguished" if together else "is fastest"
    slower = [f"; {rank.label} takes {_multiple(rank)} times as long" for rank in others if rank.place != first.place]
    return f"{join_names([first.label, *together])} {tie}{''.join(slower)}."


def _without_place(found: Comparisons) -> Iterator[str]:
    """Names the functions without a rank. The table and the remarks give the full reasons."""
    without = [c for c in found.of("run") if c.candidate.label in found.unranked] if found.labels else []
    if wrong := [c.candidate.label for c in without if c.failure is None and c.ratio is not None]:
        baseline = found.labels[0]
        returned = "returns a different result" if len(wrong) == 1 else "return different results"
        yield f"Not ranked: {join_names(wrong)} {returned} from {baseline}."
        if len(found.ranking) == 1:
            yield f"If {baseline} is wrong, choose another baseline."
    if failed := [c.candidate.label for c in without if found.is_at_fault(c)]:
        yield f"Not ranked: {join_names(failed)} failed."


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
    drawn = [chart(found)] if found.of("run") else []
    titles = [each.title.partition("\n")[0] for each in drawn] or ["comparison"]
    # The heading replaces the title of the figure.
    ratios = (replace(each, title="ratios with their 95 % intervals") for each in drawn)
    return Document((Heading(titles[0][:1].upper() + titles[0][1:], 1), *ratios, *document(found).blocks))


def chart(found: Comparisons) -> Chart:
    """Raises `UsageError` if there is no comparison of run times."""
    runs = found.of("run")
    if not runs:
        raise UsageError("nothing to draw", "comparisons of run times")
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
        known = [
            (i, c.ratio, c.low, c.high) for i, c in enumerate(runs) if c.verdict == verdict and c.ratio is not None
        ]
        look = {"along": "x", "label": verdict, "style": style, "symbol": symbol, "is_hollow": verdict == "unclear"}
        if known:
            yield place_points(known, **look)
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
    else:
        step = next(s for s in (0.02, 0.05, 0.1, 0.25) if half / s <= 4 or s == 0.25)
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
        return [_shorten_name(c.candidate.label) for c in runs]
    ends = [f": {c.candidate.label}" if len(candidates) > 1 else "" for c in runs]
    return [_shorten_name(c.case.label + end) for c, end in zip(runs, ends, strict=True)]


def words(c: Comparison) -> str:
    """slower  +3.2 % (+2.1 to +4.4 %); from a factor of 2 on: result differs (faster)  × 0.062 (0.058 – 0.067)"""
    is_far = c.estimate is not None and not 0.5 < c.estimate.value < 2
    return f"{verdict(c)}  {f'× {c.estimate.text()}' if c.estimate and is_far else interval(c)}".rstrip()


def _title(found: Comparisons, runs: Sequence[Comparison], against: str) -> str:
    """Names the compared versions, then the machine, the inputs and the timer, as above the table."""
    candidates = {c.candidate.label for c in runs}
    is_of_one = runs[0].case.name not in found.labels and len({c.case for c in runs}) == 1
    case = f"{_shorten_name(runs[0].case.label)}: " if is_of_one else ""
    who = f" of {_shorten_name(candidates.pop())}" if len(candidates) == 1 else ""
    return "\n".join(filter(None, (f"{case}run time{who} against {against}", heading(found))))


def _shorten_name(name: str) -> str:
    return cut_middle(one_line(name), LONGEST_NAME)


# ---- error rates -----------------------------------------------------------------------------------------------------
#
# Shows how often benchax was wrong, in tables and sentences: the planted changes, the verdicts, and the resulting
# claims.


WORDS: tuple[Verdict, ...] = ("slower", "faster", "same", "unclear")


def document_of_error_rates(found: ErrorRates) -> Document:
    tables = (verdict_grid(found), effect_grid(found))
    return Document((*list_lines(about(found), "faint"), *tables, *list_lines(conclusions(found))))


def to_plain_data(found: ErrorRates) -> dict[str, Any]:
    """For JSON: counts and shares with 95 % intervals, effects as ratios, times in seconds. None: not measured."""
    changes = [
        {
            "planted": tally.planted,
            "judged": tally.judged,
            "failed": tally.failed,
            **{word: tally.verdicts[word] for word in WORDS},
            "intervals": {word: tally.interval(word) for word in WORDS},
        }
        for tally in found.tallies()
    ]
    effects = [
        (kernel, planted, found.effect(kernel, planted)) for kernel in found.kernels for planted in found.planted
    ]
    return {
        "changes": changes,
        "effects": [
            {"kernel": kernel, "planted": planted}
            | {end: getattr(ratio, end, None) for end in ("ratio", "low", "high")}
            for kernel, planted, ratio in effects
        ],
        "elapsed_s": found.elapsed_s,
        "per_verdict_s": found.per_verdict_s,
        "noise": asdict(found.noise),
    }


def about(found: ErrorRates) -> Iterator[str]:
    """The machine, and what else it did."""
    env = next((t.comparison.environment for t in found.trials if t.comparison.environment), None)
    if env is not None:
        cores, jax = f"{env.cores} cores" * bool(env.cores), f"jax {env.jax}" * bool(env.jax)
        yield " · ".join(filter(None, (env.host, env.backend, name_device(env), cores, jax)))
    noise = found.noise
    others, stolen, load = (
        "not measured" if value is None else write(value)
        for value, write in (
            (noise.others_share, percent),
            (noise.steal_share, percent),
            (noise.load_1m, "{:.2f}".format),
        )
    )
    yield f"load {load}, benchax included · CPU time of others {others} · taken by the hypervisor {stolen}"


def verdict_grid(found: ErrorRates) -> Table:
    """Shares with their exact 95 % intervals."""
    lines = [
        (planted_name(tally.planted), str(tally.judged), *(_share(tally, word) for word in WORDS))
        for tally in found.tallies()
    ]
    return tabulate((CASE, "judged", *(TableColumn(word, least_width=8) for word in WORDS)), lines)


def _share(tally: Tally, word: Verdict) -> str:
    """3: 7.5 % (1.6 – 20)"""
    if not tally.judged:
        return ""
    low, high = (number(100 * end, 2) for end in tally.interval(word))
    return f"{tally.verdicts[word]}: {number(100 * tally.verdicts[word] / tally.judged, 2)} % ({low} – {high})"


def effect_grid(found: ErrorRates) -> Table:
    """Shows the real effects: the work outside the loop makes a planted change smaller."""
    times = {kernel: found.baseline_s(kernel) for kernel in found.kernels}
    lines = [
        (
            kernel,
            "" if time_s is None else seconds(time_s),
            *(_effect(found, kernel, planted) for planted in found.planted),
        )
        for kernel, time_s in times.items()
    ]
    columns = (TableColumn(f"really, of {planted_name(planted)}", least_width=8) for planted in found.planted)
    return tabulate((CASE, "median", *columns), lines)


def _effect(found: ErrorRates, kernel: str, planted: float) -> str:
    """+4.8 % (+4.7 to +5.0 %), by all that was timed."""
    if (ratio := found.effect(kernel, planted)) is None:
        return ""
    middle, low, high = (None if r is None else f"{100 * (r - 1):+.1f}" for r in (ratio.ratio, ratio.low, ratio.high))
    return f"{middle} %" if low is None else f"{middle} % ({low} to {high})"


def conclusions(found: ErrorRates) -> Iterator[str]:
    """Yields the conclusions, one thought per sentence."""
    for tally in found.tallies():
        if tally.judged:
            yield _false_alarms(tally) if tally.planted == UNCHANGED else _caught(tally)
        if tally.failed:
            failed = plural(tally.failed, "comparison")
            yield f"{failed} of {planted_name(tally.planted)} could not run (not counted)."
    if found.per_verdict_s is not None:
        yield f"A verdict took {seconds(found.per_verdict_s, 2)}. The limits hold if comparisons err independently."


def _false_alarms(tally: Tally) -> str:
    """States the most important rate: users ignore a tool that raises many false alarms."""
    slower, faster = (
        {0: "never", 1: "once", 2: "twice"}.get(n, f"{n} times")
        for n in (tally.verdicts["slower"], tally.verdicts["faster"])
    )
    return (
        f"In {plural(tally.judged, 'comparison')} of unchanged code benchax reported slower {slower} and faster "
        f"{faster}. In its current state, this machine reports slower for at most {percent(tally.at_most('slower'))} "
        "of unchanged code (at 95 % confidence)."
    )


def _caught(tally: Tally) -> str:
    slower = tally.verdicts["slower"]
    # The lower end of 90 % on two sides is the limit of 95 % on one side.
    low, _ = tally.interval("slower", 0.90)
    return (
        f"It reported slower for {slower} of {plural(tally.judged, 'comparison')} with {planted_name(tally.planted)} "
        f"planted: it finds at least {percent(low)} of such changes (at 95 % confidence)."
    )
