"""The page of a case: its times by session, and each history of its ratios with what changed."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchax.comparing.gate import amount
from benchax.comparing.history import History
from benchax.model import NOT_COMPARED, CaseId, Comparison, Environment
from benchax.printable import cap, show_line
from benchax.reporting.chart import Axis, AxisTick, Chart, Points
from benchax.reporting.comparisons import interval
from benchax.reporting.document import Block, Document, Facts, Heading, Paragraph, Section, Table, TextRow, tabulate
from benchax.reporting.history import NAMES, NO_TIMES, commit, document_with_chart, heading, size_of, sparkline
from benchax.reporting.tables import COMMIT, WHEN, WHERE, TableColumn, describe_date, describe_fact, join_time, one_line
from benchax.stats.changepoints import LEAST, P
from benchax.stats.verdicts import Verdict
from benchax.store.comparisons import CaseActivity, TimelineRow
from benchax.units import percent, plural, seconds, seconds_range

MOST_POINTS = 3000
"""Rows in a chart, the newest ones."""
MOST_ROWS = 30
"""In the table."""
MOST_SERIES = 8
"""Environments that have a separate colour; the page describes this many."""
MOST_TICKS = 30
VERDICTS: tuple[Verdict, ...] = ("faster", "slower", "same", "unclear")
NO_COMPARISON = "nothing was compared with a baseline yet, so nothing is judged; run benchax compare"
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
        blocks.append(Paragraph(NO_COMPARISON, "faint"))
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
        (describe_date(row.started_at), shorten_version(version_of_row(row)), names[row.fingerprint], *_words(row))
        for row in rows
    ]
    return tabulate(columns, lines, ["" if row.status == "ok" else "bad" for row in rows], older)


def _words(row: TimelineRow) -> tuple[str, ...]:
    if row.median_s is None:
        why = (row.failure_kind or row.status).replace("_", " ")
        return row.timer or "", "", "", "", f"not measured: {why if why != 'ok' else 'no samples'}"
    between = "" if row.low_s is None or row.high_s is None else seconds_range(row.low_s, row.high_s)
    return row.timer or "", seconds(row.median_s), between, str(row.n or ""), "" if row.status == "ok" else row.status


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


LONGEST_FACT = 400


def describe_facts(env: Environment) -> dict[str, str]:
    """By name: host, jax, memory, XLA_FLAGS. Unknown ones are left out."""
    return {name: cap(show_line(text), LONGEST_FACT) for name, text in _facts(env) if text}


def _facts(env: Environment) -> Iterator[tuple[str, str]]:
    for f in dataclasses.fields(Environment):
        value: Any = getattr(env, f.name)
        if f.name in NOT_COMPARED or value is None:
            continue
        if isinstance(value, Mapping):
            yield from ((str(key), str(setting)) for key, setting in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        else:
            yield f.name.removesuffix("_bytes").replace("_", " "), describe_fact(f.name, value)


def split_common(facts: Sequence[Mapping[str, str]]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Returns the facts that all environments have in common, and the other facts of each."""
    first: Mapping[str, str] = facts[0] if facts else {}
    common = {name: text for name, text in first.items() if all(each.get(name) == text for each in facts)}
    return common, [{name: text for name, text in each.items() if name not in common} for each in facts]


def name_environment(fingerprint: str, facts: Mapping[str, str]) -> str:
    """node-17 · cpu · AMD EPYC · jax 0.10.2 · 3f2a1b"""
    backend = facts.get("backend", "")
    device = facts.get("processor" if backend == "cpu" else "device kind", "")
    jax = f"jax {facts['jax']}" if "jax" in facts else ""
    parts = (facts.get("host", "host unknown"), backend, device, jax, fingerprint[:6])
    return " · ".join(cap(part, 60) for part in parts if part)


def name_briefly(facts: Mapping[str, str]) -> str:
    """node-17, jax 0.10.2"""
    jax = f"jax {facts['jax']}" if "jax" in facts else ""
    return ", ".join(cap(part, 40) for part in (facts.get("host", ""), facts.get("backend", ""), jax) if part)


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
    where: int | None = None
    """Place of the environment."""
    status: str = ""
    bars: str = ""
    newest: Comparison | None = None
    """The newest comparison, which is one of run times if there is any."""
    looks: int = 0
    """Comparisons among the newest ones of each of its series in which a change could have been found by mistake."""
    changes: tuple[FoundChange, ...] = ()


def name_version(commit: str | None, is_dirty: bool | None, run: str) -> str:
    """Returns a version's name: the whole commit, with + for uncommitted changes, or the run if there is no commit."""
    return commit + "+" * bool(is_dirty) if commit else f"run {run}"


def shorten_version(name: str) -> str:
    """a1b2c3d4+; run 0f9e8d7c6b5a"""
    if name.startswith("run "):
        return name[:16]
    return name[:8] + "+" * name.endswith("+")


def version_of_row(row: TimelineRow) -> str:
    return name_version(row.commit, row.is_dirty, row.run_id)


def version_of_comparison(c: Comparison) -> str | None:
    """Returns None if nothing distinguishes the version from others."""
    return name_version(c.candidate.commit, c.candidate.is_dirty, "") if c.candidate.commit else None


def file_of(version: str) -> str:
    """A name of a version's file that no text of a stranger can lead astray."""
    return f"{hashlib.sha256(version.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}.js"


RECENT = 30
"""This many of the newest comparisons of each series count as "lately"."""
LONGEST_LABEL = 100
BARS = 16


def shorten_label(case: CaseId) -> str:
    return cap(show_line(one_line(case.label)), LONGEST_LABEL)


def summarize(activity: CaseActivity, found: CaseTimeline, page: str, places: dict[str, int]) -> CaseSummary:
    """Args:
    places: of environments, by fingerprint.
    """
    newest = found.rows[-1] if found.rows else None
    judged = _newest_run_history(found.histories)
    dates = [row.started_at for row in found.rows[-1:]] + [h.points[-1].compared_at for h in found.histories]
    return CaseSummary(
        activity.id,
        page,
        shorten_label(found.case),
        newest_at=max(dates),
        version=shorten_version(version_of_row(newest)) if newest else "",
        time=_describe_time(found),
        where=places.get(newest.fingerprint) if newest else None,
        status="" if newest is None else newest.status,
        bars=sparkline(judged, BARS) if judged else "",
        newest=judged.points[-1] if judged else None,
        looks=sum(count_looks(h) for h in found.histories),
        changes=tuple(sorted((c for h in found.histories for c in _list_changes(h)), key=lambda c: c.at)),
    )


def _newest_run_history(histories: Sequence[History]) -> History | None:
    """The histories come in the order of their newest comparisons."""
    by_run = [h for h in histories if h.metric == "run"] or list(histories)
    return by_run[-1] if by_run else None


def _describe_time(found: CaseTimeline) -> str:
    if not found.rows:
        return ""
    row = found.rows[-1]
    return "not measured" if row.median_s is None else join_time(row.median_s, row.low_s, row.high_s)


def count_looks(h: History) -> int:
    """Counts the newest comparisons in which a change can be found by mistake. They have a value and noise. The first
    ones of a history do not count, because a change has `LEAST` comparisons on either side."""
    known = [place for place, value in enumerate(h.values) if value is not None]
    return 0 if h.is_counted else sum(place >= len(h.values) - RECENT for place in known[2 * LEAST - 1 :])


# ---- changes ----------------------------------------------------------------------------------------------------


def _list_changes(h: History) -> Iterator[FoundChange]:
    for change in h.changes:
        first, last = h.points[change.at], h.points[change.last]
        sure = "counted, without noise" if change.p is None else f"p < {P}"
        yield FoundChange(
            first.compared_at,
            commit(first),
            commit(last),
            size_of(change, h),
            sure,
            _describe_value(first, h),
            _describe_value(h.points[-1], h),
            NAMES[h.metric],
            cap(show_line(one_line(h.baseline)), LONGEST_LABEL),
            is_worse=change.after > change.before,
            is_recent=change.at >= len(h.points) - RECENT,
        )
    if h.jump is not None:
        newest = h.points[-1]
        yield FoundChange(
            newest.compared_at,
            commit(newest),
            "",
            f"{percent(h.jump)} above the median before it",
            "a first sign: the next comparisons will show",
            _describe_value(newest, h),
            _describe_value(newest, h),
            NAMES[h.metric],
            cap(show_line(one_line(h.baseline)), LONGEST_LABEL),
            is_worse=True,
            is_recent=True,
            is_sign=True,
        )


def _describe_value(c: Comparison, h: History) -> str:
    if h.is_counted:
        return "" if c.candidate_value is None else amount(c.candidate_value, h.metric)
    return interval(c)
