"""The page of a case: its times by session, and each history of its ratios with what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchax.comparing.history import History
from benchax.model import CaseId
from benchax.reporting.chart import Axis, AxisTick, Chart, Points
from benchax.reporting.document import Block, Document, Facts, Heading, Paragraph, Section, Table, TextRow, tabulate
from benchax.reporting.history import NO_TIMES, document_with_chart, heading
from benchax.reporting.site.environments import name_environment, split_common
from benchax.reporting.site.versions import shorten_version, version_of_row
from benchax.reporting.tables import COMMIT, WHEN, WHERE, TableColumn
from benchax.store.timelines import TimelineRow
from benchax.units import plural, seconds, seconds_range

MOST_POINTS = 3000
"""Rows in a chart, the newest ones."""
MOST_ROWS = 30
"""In the table."""
MOST_SERIES = 8
"""Environments that have a separate colour; the page describes this many."""
MOST_TICKS = 30
NOT_COMPARED = "nothing was compared with a baseline yet, so nothing is judged; run benchax compare"
ALONE = "Each time is that of its own session, with its 95 % interval, which knows nothing of other sessions."


@dataclass(frozen=True)
class CaseTimeline:
    """All that a page says of a case."""

    case: CaseId
    rows: Sequence[TimelineRow]
    histories: Sequence[History]
    environments: Mapping[str, Mapping[str, str]]
    """Facts by fingerprint, of all that the rows were measured in."""


def documents(found: CaseTimeline) -> tuple[Document, ...]:
    """The page's own first, then a part for each history."""
    return (_own(found), *map(_part, found.histories))


def _part(h: History) -> Document:
    title, *rest = document_with_chart(h).blocks
    return Document((replace(title, text=heading(h), below=()), *rest)) if isinstance(title, Heading) else Document(())


def _own(found: CaseTimeline) -> Document:
    blocks: list[Block] = [Heading(found.case.label, 1, _below(found))]
    if not found.histories:
        blocks.append(Paragraph(NOT_COMPARED, "faint"))
    if found.rows:
        blocks += [Heading("Times"), Paragraph(f"{ALONE} So {NO_TIMES}.", "faint")]
        blocks += [_chart(found), _table(found), *_describe_environments(found)]
    if found.histories:
        blocks.append(Heading("Comparisons with baselines"))
    return Document(tuple(blocks))


def _below(found: CaseTimeline) -> tuple[str, ...]:
    failed = sum(row.status != "ok" for row in found.rows)
    counts = [plural(len(found.rows), "row") + (f", {failed} failed" if failed else "")] if found.rows else []
    compared = sum(len(h.points) for h in found.histories)
    counts += [plural(compared, "comparison")] if compared else []
    dates = sorted(
        [row.started_at[:10] for row in found.rows] + [c.compared_at[:10] for h in found.histories for c in h.points]
    )
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return (" · ".join([*counts, span]),)


# ---- times ------------------------------------------------------------------------------------------------------


def _chart(found: CaseTimeline) -> Chart:
    rows = found.rows[-MOST_POINTS:]
    names = _names_of_series(found)
    by_name: dict[str, list[tuple[int, TimelineRow]]] = {}
    for place, row in enumerate(rows):
        by_name.setdefault("not measured" if row.median_s is None else names[row.fingerprint], []).append((place, row))
    marks = tuple(_points(name, placed) for name, placed in by_name.items())
    older = f"the newest {MOST_POINTS} of {len(found.rows)} rows" if len(rows) < len(found.rows) else ""
    every = -(-len(rows) // MOST_TICKS)
    ticks = tuple(AxisTick(i, shorten_version(version_of_row(rows[i]))) for i in range(0, len(rows), every))
    x = Axis(ends=(-1, len(rows)), ticks=ticks, are_names=True)
    y = Axis("time per call", "seconds")
    return Chart(x, y, marks, "time per call, session by session", has_series=len(marks) > 1, note=older, is_broad=True)


def _points(name: str, placed: Sequence[tuple[int, TimelineRow]]) -> Points:
    ends = tuple(None if row.low_s is None or row.high_s is None else (row.low_s, row.high_s) for _, row in placed)
    values = tuple(row.median_s for _, row in placed)
    style = "faint" if name == "not measured" else ""
    return Points(tuple(place for place, _ in placed), values, ends, label=name, style=style)


def _names_of_series(found: CaseTimeline) -> dict[str, str]:
    """By fingerprint; those that were not used for longest share one."""
    newest = list(dict.fromkeys(row.fingerprint for row in reversed(found.rows)))
    named = {each: name_environment(each, found.environments.get(each, {})) for each in newest[:MOST_SERIES]}
    return {each: named.get(each, "other environments") for each in newest}


def _table(found: CaseTimeline) -> Table:
    rows = found.rows[-MOST_ROWS:]
    names = _names_of_series(found)
    columns = (
        WHEN,
        COMMIT,
        WHERE,
        TableColumn("timer", "words"),
        "median",
        "95 %",
        "samples",
        TableColumn("", "words"),
    )
    older = f"{len(found.rows) - len(rows)} older ones are not listed" if len(rows) < len(found.rows) else ""
    lines = [
        (_when(row.started_at), shorten_version(version_of_row(row)), names[row.fingerprint], *_words(row))
        for row in rows
    ]
    return tabulate(columns, lines, ["" if row.status == "ok" else "bad" for row in rows], older)


def _words(row: TimelineRow) -> tuple[str, ...]:
    if row.median_s is None:
        why = (row.failure_kind or row.status).replace("_", " ")
        return row.timer or "", "", "", "", f"not measured: {why if why != 'ok' else 'no samples'}"
    between = "" if row.low_s is None or row.high_s is None else seconds_range(row.low_s, row.high_s)
    return row.timer or "", seconds(row.median_s), between, str(row.n or ""), "" if row.status == "ok" else row.status


def _when(date: str) -> str:
    return date[:16].replace("T", " ")


def _describe_environments(found: CaseTimeline) -> tuple[Block, ...]:
    """Describes what the newest environments have in common, and how each differs."""
    names = _names_of_series(found)
    chosen = [each for each in names if each in found.environments][:MOST_SERIES]
    if not chosen:
        return ()
    common, own = split_common([found.environments[each] for each in chosen])
    if len(chosen) == 1:
        sections = (_section(names[chosen[0]], common),)
    else:
        own_sections = (_section(names[each], facts) for each, facts in zip(chosen, own, strict=True))
        sections = (_section("in all of these environments", common), *own_sections)
    return Heading("Environments"), Facts(sections, "words")


def _section(title: str, facts: Mapping[str, str]) -> Section:
    return Section(title, tuple(TextRow(name, text) for name, text in facts.items()))
