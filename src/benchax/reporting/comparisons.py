"""Comparisons in words and tables: who is faster, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.text import Text

from benchax.comparing.gate import amount
from benchax.comparing.ranking import Comparisons, Rank
from benchax.model import Comparison, Remark
from benchax.reporting import terminal
from benchax.reporting.tables import Grid, Style
from benchax.stats.ratios import grade
from benchax.units import number, percent, seconds

STYLES: dict[str, Style] = {"faster": "good", "slower": "bad", "same": "", "unclear": "faint"}
ADVICE = "advice"
OF_A_CASE = ("outputs-differ", ADVICE)
"""Remarks that are about one case."""
COLUMN = 24
"""Longest name of a column."""
COUNTED = {"faster": "less", "slower": "more", "same": "same", "unclear": "unclear"}


def drawn(found: Comparisons) -> RenderableType:
    """For the terminal."""
    parts: list[RenderableType] = [Text(heading(found), style="dim")] if heading(found) else []
    if found.ranking:
        parts += [Text(), terminal.grid(ranking_grid(found))]
        parts += [Text(), Text(summary(found))]
    else:
        parts += [Text(), terminal.grid(case_grid(found))]
    if seen := sight(found):
        parts += [Text(), Text(seen, style="dim")]
    if other := [c for c in found if c.metric != "run" and c.verdict in ("slower", "faster")]:
        parts += [Text()] + [Text(sentence(c)) for c in other]
    if notes := remarks(found):
        parts.append(terminal.remarks(notes))
    return Group(*parts)


def text(found: Comparisons) -> str:
    return terminal.to_text(drawn(found))


def html(found: Comparisons) -> str:
    """A fragment for notebooks; styles as those of a measurement."""
    grid = ranking_grid(found) if found.ranking else case_grid(found)
    cell = "padding:1px 12px 1px 0;text-align:left;border:0"
    head = "".join(f"<th style='{cell}'>{escape(name)}</th>" for name in grid.columns)
    body = "".join(
        "<tr style='background:none'>" + "".join(f"<td style='{cell}'>{escape(t)}</td>" for t in line) + "</tr>"
        for line in grid.lines
    )
    last = f"<div>{escape(summary(found))}</div>" if found.ranking else ""
    notes = "".join(f"<div style='opacity:.75'>{escape(remark.message)}</div>" for remark in remarks(found))
    return (
        f"<div class='benchax'><table style='border-collapse:collapse'><tr>{head}</tr>{body}</table>{last}{notes}</div>"
    )


def heading(found: Comparisons) -> str:
    """What was compared, where, and by how much data."""
    first = next((c for c in found if c.blocks), None)
    if first is None or first.environment is None:
        return ""
    env = first.environment
    device = env.processor if env.backend == "cpu" else env.device_kind
    where = " · ".join(part for part in (env.backend, device, f"jax {env.jax}" if env.jax else "") if part)
    pairs = f"{first.pairs} pairs in {first.processes} processes" if len(found.of("run")) == 1 or found.ranking else ""
    return f"{first.case.label}: {where} · {pairs}" if found.ranking else where


def sight(found: Comparisons) -> str:
    """How small a change would have been found, and the grades of that (`stats.ratios.grade`)."""
    effects = sorted(c.smallest_effect for c in found.of("run") if c.smallest_effect is not None)
    if not effects:
        return ""
    grades = dict.fromkeys(map(grade, (effects[0], effects[-1])))
    least, most = (percent(effect) for effect in (effects[0], effects[-1]))
    sizes = least if least == most else f"{least} to {most}"
    return f"noise grade {' to '.join(grades)}: changes of {sizes} would have been found in 80 % of cases"


def ranking_grid(found: Comparisons) -> Grid:
    runs = {c.candidate.label: c for c in found.of("run")}
    baseline = next(iter(runs.values())).baseline.label if runs else ""
    lines = [
        (str(rank.place), rank.label, seconds(rank.median_s), *_against(runs.get(rank.label), rank.label == baseline))
        for rank in found.ranking
    ]
    # Those that have no place, because they could not be run.
    without = [label for label in runs if label not in {rank.label for rank in found.ranking}]
    lines += [("", label, "", *_against(runs[label], False)) for label in without]
    labels = [*(rank.label for rank in found.ranking), *without]
    styles: tuple[Style, ...] = tuple(STYLES[runs[label].verdict] if label in runs else "" for label in labels)
    return Grid(("place", "case", "median", f"against {_column(baseline)}", "verdict"), tuple(lines), styles)


def _against(c: Comparison | None, is_baseline: bool) -> tuple[str, str]:
    if c is None:
        return ("baseline" if is_baseline else "", "")
    return interval(c), verdict(c)


def case_grid(found: Comparisons) -> Grid:
    """One line for each comparison of run times, or of a case that has none."""
    runs = found.of("run")
    lines = [
        (
            " ".join(c.case.label.splitlines()),
            "" if c.baseline_value is None else amount(c.baseline_value, c.metric),
            "" if c.candidate_value is None else amount(c.candidate_value, c.metric),
            interval(c),
            verdict(c),
        )
        for c in runs
    ]
    names = {(c.baseline.label, c.candidate.label) for c in runs}
    one, other = next(iter(names)) if len(names) == 1 else ("baseline", "candidate")
    styles: tuple[Style, ...] = tuple(STYLES[c.verdict] for c in runs)
    return Grid(("case", _column(one), _column(other), "change", "verdict"), tuple(lines), styles)


def _column(label: str) -> str:
    """As the name of a column, which is never folded: a long one would leave no room for the numbers."""
    line = " ".join(label.split())
    return line if cell_len(line) <= COLUMN else set_cell_size(line, COLUMN - 1).rstrip() + "…"


def interval(c: Comparison) -> str:
    """+3.2 % (+2.1 to +4.4 %)"""
    if c.ratio is None:
        return ""
    if c.low is None or c.high is None:
        return _signed(c.ratio)
    return f"{_signed(c.ratio)} ({_signed(c.low).removesuffix(' %')} to {_signed(c.high)})"


def _signed(ratio: float) -> str:
    share = 100 * (ratio - 1)
    return f"{'+' if share >= 0 else '-'}{number(abs(share), 2 if abs(share) < 100 else 3)} %"


def verdict(c: Comparison) -> str:
    word = COUNTED[c.verdict] if c.method == "counted" else c.verdict
    sure = ", confirmed" if c.confirmed else ""
    return f"{word}{sure}" + (f": {c.why}" if c.why else "")


def sentence(c: Comparison) -> str:
    """peak memory of fused: 2.00 MiB where naive has 1.00 MiB"""
    names = {
        "compile": "compiling",
        "peak": "peak memory",
        "constants": "constants",
        "flops": "operations",
        "run": "run",
    }
    what = f"{names[c.metric]} of {c.case.label}"
    if c.method == "counted" and c.baseline_value is not None and c.candidate_value is not None:
        before, after = (amount(v, c.metric) for v in (c.baseline_value, c.candidate_value))
        return f"{what}: {after} in {c.candidate.label}, {before} in {c.baseline.label}"
    return f"{what}: {c.candidate.label} {verdict(c)}, {interval(c)}"


def summary(found: Comparisons) -> str:
    """fused ran 1.53 (1.51 – 1.60) times as fast as naive. double is the slowest, 2.1 times …"""
    first, *others = found.ranking
    together = [rank.label for rank in others if rank.place == first.place]
    lead = _listed([first.label, *together])
    begin = f"{lead} {'are' if together else 'is'} fastest"
    tie = ", and cannot be told apart" if together else ""
    slower = [_times(rank) for rank in others if rank.place != first.place]
    return f"{begin}{tie}" + (f"; {'; '.join(slower)}." if slower else ".")


def _times(rank: Rank) -> str:
    around = f" ({number(rank.low)} – {number(rank.high)})" if rank.low and rank.high else ""
    return f"{rank.label} takes {number(rank.ratio)}{around} times as long"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def remarks(found: Iterable[Comparison]) -> list[Remark]:
    """Each once, with its case where there are several; and what to do about failures."""
    listed = list(found)
    is_one_case = len({c.case for c in listed}) == 1
    named = [
        r if is_one_case or r.code not in OF_A_CASE else replace(r, message=f"{c.case.label}: {r.message}")
        for c in listed
        for r in (*c.remarks, *_advice(c))
    ]
    return list({(r.code, r.message): r for r in named}.values())


def _advice(c: Comparison) -> list[Remark]:
    return [Remark(ADVICE, "info", c.failure.advice)] if c.failure and c.failure.advice else []
