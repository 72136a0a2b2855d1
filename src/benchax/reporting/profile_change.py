"""Two profiles in tables: what takes longer, what takes less, what is new and what is gone; by line first, then by
operation. For two whole programs, a table also shows the parts of one step of their loops.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchax.reporting.document import Block, Document, Heading, Paragraph, Table, TableColumn, list_remarks, tabulate
from benchax.reporting.steps import KINDS
from benchax.reporting.tables import LINE_NAMES, WHERE, truncate
from benchax.results.profile import LineChange, OpChange, ProfileChange
from benchax.source_files import NOT_YOURS, without_folders
from benchax.units import count, seconds

TOP, MOST_LINES = 20, 10
WIDTH, WIDE = 40, 60


def document(change: ProfileChange) -> Document:
    return Document((*_top(change), *_tables(change), *list_remarks(change.remarks)))


def _top(change: ProfileChange) -> Iterator[Block]:
    yield Heading(f"{change.before} → {change.after}", 1)
    if change.steps_s is not None:
        before_s, after_s = change.steps_s
        yield Paragraph(
            f"a step takes {seconds(after_s)}, before {seconds(before_s)} (medians): {_more(*change.steps_s)}"
        )
    if change.lines:
        own = [line for line in change.lines if line.source] or change.lines
        yield Paragraph(f"the line that differs most: {_describe(own[0])} a {change.per}")


def _describe(line: LineChange) -> str:
    """+18.0 ms at model.py:41, dot is f32[64,64] now, was bf16[64,64]"""
    op, is_known = line.largest, line.before_s is not None and line.after_s is not None
    where = f"at {without_folders(line.source)}" if line.source else f"of {op.name}"
    program = f" in {line.module}" if line.module else ""
    more = _more(line.before_s or 0.0, line.after_s or 0.0) if is_known else "an unknown time"
    dtype = f", {op.category or op.name} is {op.shape} now, was {op.shape_before}" if op.shape_before else ""
    return f"{more} {where}{program}{dtype}"


def _tables(change: ProfileChange) -> Iterator[Block]:
    if change.parts:
        rows = [
            (KINDS[part.kind], seconds(part.before_s), seconds(part.after_s), _more(part.before_s, part.after_s))
            for part in change.parts
        ]
        part = TableColumn("part of the mean step", "words")
        yield tabulate((part, "before", "after", "more"), rows)
    if any(line.source for line in change.lines) and len(change.lines) > 1:
        order = (
            "largest change in all runs first" if any(line.module for line in change.lines) else "largest change first"
        )
        yield Heading("by line", below=(f"self time per {_per(change)}, {order}",))
        yield by_line(change)
    if change.ops:
        yield Heading("by operation", below=(f"self time per {_per(change)}, largest change first",))
        yield grid(change)


def _per(change: ProfileChange) -> str:
    return "run of its program" if change.per == "run" else change.per


def by_line(change: ProfileChange) -> Table:
    rows = [
        (
            _name(line),
            _time(line.before_s),
            _time(line.after_s),
            "" if line.before_s is None or line.after_s is None else _more(line.before_s, line.after_s),
        )
        for line in change.lines[:MOST_LINES]
    ]
    return tabulate((LINE_NAMES, "before", "after", "more"), rows)


def _name(line: LineChange) -> str:
    return f"{line.module}: {without_folders(line.source) or NOT_YOURS}".removeprefix(": ")


def grid(change: ProfileChange) -> Table:
    """One line for each origin, the largest change first, in either direction."""
    largest = sorted(change.ops, key=lambda op: -abs(op.more_s))[:TOP]
    operation = TableColumn("operation", "names", 16, breaks_words=True)
    return tabulate((operation, "before", "after", "more", "calls", WHERE), map(_line, largest))


def _line(op: OpChange) -> tuple[str, ...]:
    before = "not there" if not op.calls_before else _time(op.before_s)
    after = "not there" if not op.calls_after else _time(op.after_s)
    is_known = op.calls_before and op.calls_after and op.before_s is not None and op.after_s is not None
    more = _more(op.before_s or 0.0, op.after_s or 0.0) if is_known else ""
    calls = f"{count(op.calls_before)} → {count(op.calls_after)}"
    line = without_folders(op.source)
    scope = (op.scope or "").partition("/")[2] or op.category
    shape = f"{op.shape_before} → {op.shape}" if op.shape_before else op.shape or ""
    where = " ".join(part for part in (line, shape, scope) if part)
    return truncate(op.name, WIDTH), before, after, more, calls, truncate(where, WIDE)


def _more(before_s: float, after_s: float) -> str:
    return f"{'+' if after_s >= before_s else '-'}{seconds(abs(after_s - before_s))}"


def _time(value: float | None) -> str:
    return "not known" if value is None else seconds(value)
