"""Comparisons in words and tables: who is faster, by how much, and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from benchax.comparing.gate import amount
from benchax.comparing.history import is_counted
from benchax.comparing.judging import blind_spot
from benchax.comparing.ranking import Comparisons, Rank
from benchax.model import Comparison, Method, Metric, Remark
from benchax.reporting.document import (
    Block,
    Document,
    Paragraph,
    Style,
    Table,
    TableColumn,
    list_lines,
    list_remarks,
    tabulate,
)
from benchax.reporting.shared_remarks import each_once, share_remarks
from benchax.reporting.tables import CASE, VERDICT, VERDICT_STYLES, describe_machine, one_line, truncate
from benchax.stats.verdicts import grade
from benchax.units import change, number, percent, plural

ADVICE = "advice"
TIMERS: dict[Method, str] = {
    "one process": "wall, paired: the versions in turns in one process",
    "process pairs": "wall, paired: whole processes in turns on one core",
}
OF_A_CASE = ("outputs-differ", "nonfinite-result", "no-outputs", "recompiled", "alone-differs", ADVICE)
"""Remarks that are about one case."""
COLUMN = 24
"""Longest name of a column, which is never folded: a long one would leave no room for the numbers."""
COLUMNS: tuple[Metric, ...] = ("run", "compile", "peak")
"""Metrics that have columns, where functions are compared; the others have sentences."""
NAMES: dict[Metric, str] = {
    "run": "run",
    "compile": "compiling",
    "peak": "peak memory",
    "constants": "constants",
    "flops": "operations",
}
COUNTED = {"faster": "less", "slower": "more", "same": "same", "unclear": "unclear"}


def document(found: Comparisons, has_asides: bool = True) -> Document:
    """`has_asides`: also what is about no comparison, which a command line has said before."""
    blocks: list[Block] = [Paragraph(heading(found), "faint")] if heading(found) else []
    blocks += grids(found)
    if said := summary(found):
        blocks.append(Paragraph(said))
    blocks += list_lines((line for line in (sight(found), blind_spot(found)) if line), "faint")
    blocks += [*list_lines(others(found)), *list_remarks(remarks(found))]
    return Document((*blocks, *list_lines(found.asides if has_asides else ())))


def grids(found: Comparisons) -> list[Table]:
    """Returns the tables. For functions: each next to the baseline, and their ranks. For several cases: one line per
    case."""
    if not found.labels:
        return [case_grid(found)]
    return [function_grid(found), *([ranking_grid(found)] if len(found.ranking) > 1 else [])]


def heading(found: Comparisons) -> str:
    """Returns what was compared, on which inputs, where, by which timer, and from how much data."""
    first = next((c for c in found if c.blocks), None)
    if first is None or first.environment is None:
        return ""
    signatures = {c.signature for c in found.of("run")}
    inputs = first.signature if len(signatures) == 1 else ""
    where = describe_machine(first.environment)
    processes = f"{first.processes} process{'es' * (first.processes != 1)}"
    pairs = f"{plural(first.pairs, 'pair')} in {processes}" if len(found.of("run")) == 1 or found.labels else ""
    # A case has the name of a function, unless another was given: that says nothing where functions are listed.
    name = "" if first.case.name in found.labels else f"{first.case.label}: "
    line = f"{name}{where} · {pairs}" if found.labels else where
    return "\n".join(part for part in (line, inputs, TIMERS.get(first.method, "")) if part)


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
        "result",
        "compile",
        "peak",
        VERDICT,
    )
    lines = [_baseline_line(found), *(_function_line(found, label) for label in candidates)]
    runs = {c.candidate.label: c for c in found.of("run")}
    styles: list[Style] = ["", *("bad" if label in found.unranked else style(runs[label]) for label in candidates)]
    return tabulate(columns, lines, styles).without_empty_columns()


def style(c: Comparison) -> Style:
    return "bad" if c.differs else VERDICT_STYLES[c.verdict]


def _baseline_line(found: Comparisons) -> tuple[str, ...]:
    values = [_describe_known((c.baseline_value for c in found.of(metric)), metric) for metric in COLUMNS]
    run, *others = values
    why = "" if run else "not measured, because nothing else ran beside it"
    return (found.labels[0], run, "baseline", "", *others, why)


def _function_line(found: Comparisons, label: str) -> tuple[str, ...]:
    of = {c.metric: c for c in found if c.candidate.label == label}
    run, *others = [_describe_known((of[m].candidate_value,) if m in of else (), m) for m in COLUMNS]
    against = of["run"]
    why = verdict(against) if against.failure is None else found.unranked[label]
    return (label, run, interval(against), _result(against), *others, why)


def _describe_known(values: Iterable[float | None], metric: Metric) -> str:
    value = next((value for value in values if value is not None), None)
    return "" if value is None else amount(value, metric)


def _result(c: Comparison) -> str:
    """Results that agree can still differ by as much as is shown; a remark tells how far others are apart."""
    if c.numerics is None:
        return ""
    far = f" to {c.numerics.max_rel:.1e}" if c.numerics.max_rel else ""
    return "differs" if c.differs else f"agrees{far}" if far else "equal"


def ranking_grid(found: Comparisons) -> Table:
    """Places, and times as those of the fastest, of the pairs of each with it."""
    places = [rank.place for rank in found.ranking]
    marked = [f"{place}=" if places.count(place) > 1 else str(place) for place in places]
    times = ["1", *map(_multiple, found.ranking[1:])]
    lines = [(place, rank.label, time) for place, rank, time in zip(marked, found.ranking, times, strict=True)]
    return tabulate(("place", CASE, "times the fastest"), lines)


def _multiple(rank: Rank) -> str:
    """1.53 (1.51 – 1.60)"""
    if rank.ratio is None:
        return "not compared"
    around = f" ({number(rank.low)} – {number(rank.high)})" if rank.low and rank.high else ""
    return f"{number(rank.ratio)}{around}"


def case_grid(found: Comparisons) -> Table:
    """One line for each comparison of run times, or for a case without one. Inputs have a column if they differ;
    otherwise they are above the table."""
    runs = found.of("run")
    are_alike = len({c.signature for c in runs}) == 1
    lines = [
        (
            one_line(c.case.label),
            "" if are_alike else truncate(c.signature, COLUMN),
            "" if c.baseline_value is None else amount(c.baseline_value, c.metric),
            "" if c.candidate_value is None else amount(c.candidate_value, c.metric),
            interval(c),
            verdict(c),
        )
        for c in runs
    ]
    names = {(c.baseline.label, c.candidate.label) for c in runs}
    one, other = next(iter(names)) if len(names) == 1 else ("baseline", "candidate")
    inputs = TableColumn("inputs", "words", 10)
    columns = (CASE, inputs, truncate(one, COLUMN), truncate(other, COLUMN), "change", VERDICT)
    table = tabulate(columns, lines, [style(c) for c in runs])
    return table.without_empty_columns(kept=set(range(len(columns))) - {columns.index(inputs)})


def interval(c: Comparison) -> str:
    """+3.2 % (+2.1 to +4.4 %)"""
    if c.ratio is None:
        return ""
    if c.low is None or c.high is None:
        return change(c.ratio)
    return f"{change(c.ratio)} ({change(c.low).removesuffix(' %')} to {change(c.high)})"


def verdict(c: Comparison, has_reason: bool = True) -> str:
    """The result comes first, if it differs: what a time is worth depends on it.

    Args:
        has_reason: False gives the verdict in as few words as possible.
    """
    said = COUNTED[c.verdict] if is_counted(c.metric) else c.verdict
    if has_reason:
        said += (", confirmed" if c.confirmed else "") + (f": {c.why}" if c.why else "")
    return f"result differs ({said})" if c.differs and c.metric == "run" else said


def others(found: Comparisons) -> list[str]:
    """Returns the changes that have no column."""
    changed = [c for c in found if c.metric != "run" and c.verdict in ("slower", "faster")]
    if not found.labels:
        return [sentence(c) for c in changed]
    return [_of_functions(found, metric) for metric in NAMES if metric in {c.metric for c in changed} - set(COLUMNS)]


def _of_functions(found: Comparisons, metric: Metric) -> str:
    """constants: 4 B in naive, 1.00 KiB in fused"""
    compared = found.of(metric)
    values = [(c.candidate.label, c.candidate_value) for c in compared]
    known = [(compared[0].baseline.label, compared[0].baseline_value), *values]
    counted = ", ".join(f"{amount(v, metric)} in {name}" for name, v in known if v is not None)
    once = " (XLA's count: the body of a loop once)" if metric == "flops" else ""
    return f"{NAMES[metric]}: {counted}{once}"


def sentence(c: Comparison) -> str:
    """peak memory of fused: 2.00 MiB where naive has 1.00 MiB"""
    what = f"{NAMES[c.metric]} of {c.case.label}"
    if c.method == "counted" and c.baseline_value is not None and c.candidate_value is not None:
        before, after = (amount(v, c.metric) for v in (c.baseline_value, c.candidate_value))
        return f"{what}: {after} in {c.candidate.label}, {before} in {c.baseline.label}"
    return f"{what}: {c.candidate.label} {verdict(c)}, {interval(c)}"


def summary(found: Comparisons) -> str:
    """fused is fastest; naive takes 1.53 (1.51 – 1.60) times as long. short has no place: its result differs."""
    return " ".join(part for part in (_places(found.ranking), _without_place(found)) if part)


def describe(found: Comparisons) -> str:
    """In one line: who is fastest, or how many cases have each verdict: 3 same, 1 slower"""
    counted = Counter(c.verdict for c in found.of("run"))
    return summary(found) or ", ".join(f"{n} {verdict}" for verdict, n in counted.items())


def _places(ranking: Sequence[Rank]) -> str:
    if len(ranking) < 2:
        return ""
    first, *others = ranking
    together = [rank.label for rank in others if rank.place == first.place]
    begin = f"{_join_names([first.label, *together])} {'are' if together else 'is'} fastest"
    tie = ", and cannot be told apart" if together else ""
    slower = [f"{rank.label} takes {_multiple(rank)} times as long" for rank in others if rank.place != first.place]
    return f"{begin}{tie}" + (f"; {'; '.join(slower)}." if slower else ".")


def _without_place(found: Comparisons) -> str:
    """Names the functions without a rank. The table and the remarks give the full reasons."""
    if not found.labels:
        return ""
    without = [c for c in found.of("run") if c.candidate.label in found.unranked]
    failed = [c.candidate.label for c in without if found.is_at_fault(c)]
    wrong = [c.candidate.label for c in without if c.failure is None and c.ratio is not None]
    parts = [_other_result(found, wrong)] if wrong else []
    return " ".join([*parts, *([f"No place for {_join_names(failed)}: failed."] if failed else [])])


def _other_result(found: Comparisons, wrong: Sequence[str]) -> str:
    baseline = found.labels[0]
    said = f"No place for {_join_names(wrong)}: another result than {baseline}."
    is_alone = len(found.ranking) == 1
    return said + (f" If {baseline} is the one that is wrong, make another the baseline." if is_alone else "")


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def remarks(found: Iterable[Comparison]) -> list[Remark]:
    """Returns each remark once, with its case if there are several, and advice about failures."""
    by_case: dict[str, list[Remark]] = {}
    for c in found:
        by_case.setdefault(c.case.label, []).extend((*c.remarks, *_advice(c)))
    if len(by_case) == 1:
        return each_once(*by_case.values())
    shared = share_remarks(by_case, apart=OF_A_CASE)
    named = [
        replace(r, message=f"{label}: {r.message}") if r.code in OF_A_CASE else r
        for label, own in shared.own.items()
        for r in own
    ]
    return [*shared.common, *each_once(named)]


def _advice(c: Comparison) -> list[Remark]:
    return [Remark(ADVICE, "info", c.failure.advice)] if c.failure and c.failure.advice else []
