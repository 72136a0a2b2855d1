"""A watch in words and tables: what was compiled, what it cost, and why; the functions that cost most first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from benchax.grouping import group_by
from benchax.model import Remark
from benchax.printable import list_some
from benchax.reporting.document import (
    Block,
    Document,
    Facts,
    Heading,
    Remarks,
    Section,
    Style,
    Table,
    TableColumn,
    TextRow,
    list_lines,
    list_remarks,
    tabulate,
)
from benchax.reporting.tables import LINE, one_line
from benchax.results.watch import (
    CacheUse,
    Compile,
    Direction,
    Fate,
    FunctionCount,
    ObservedTransfer,
    StepCompiles,
    Transfers,
    Watch,
    WatchedSteps,
)
from benchax.source_files import below_packages
from benchax.units import percent, plural, seconds, size

FUNCTION = TableColumn("function", "names", 16, is_cut=True)
MOST_FUNCTIONS = 20
MOST_STEPS = 8
"""Stretches of steps that are listed."""
MOST_REASONS = 5
"""The number of different reasons that the report lists for one function. Equal reasons appear once, with their
number."""
CLOCK = "seconds by JAX's own clock, which is not monotonic: use them to rank, not as a measurement"


def document(w: Watch) -> Document:
    blocks: list[Block] = [Heading(heading(w), 1, (cache(w),))]
    # The compilations that the user can change come first, because a table of eager operations can be long.
    for title, lines in explain(w):
        blocks += [Heading(title), *list_lines(lines)]
    if w.counts:
        blocks.append(functions(w))
    blocks += list_steps(w.steps) if w.steps else []
    return Document((*blocks, *list_remarks(remarks(w))))


def heading(w: Watch) -> str:
    """12 programs compiled, 8 recompilations · 1.21 s of 4.02 s (30 %)"""
    if not w.compiles:
        return "nothing was compiled" + (f" in {seconds(w.wall_s)}" if w.wall_s is not None else "")
    again = f", {plural(len(w.recompiles), 'recompilation')}" if w.recompiles else ""
    own = f"{plural(len(w.compiles) - len(w.eager), 'program')} of jitted functions{again}"
    share = "" if w.share is None else f" ({percent(w.share)})"
    spent = seconds(w.total_s) + ("" if w.wall_s is None else f" of {seconds(w.wall_s)}{share}")
    return " · ".join(filter(None, (own, f"{len(w.eager)} of eager operations" if w.eager else "", spent)))


def cache(w: Watch) -> str:
    """persistent cache: 3 read, 2 written"""
    if w.cache_dir is None and not w.cache_hits and not w.cache_writes:
        return "persistent cache: off"
    where = f" in {w.cache_dir}" if w.cache_dir else ""
    return f"persistent cache: {w.cache_hits} read, {w.cache_writes} written{where}"


def functions(w: Watch) -> Table:
    """One line for each function."""
    listed = w.functions[:MOST_FUNCTIONS]
    is_other = any(f.lowerings != f.compiles for f in listed)  # else one number says both
    lines = [
        (
            one_line(_name(f)),
            str(f.traces),
            str(f.lowerings) if is_other else "",
            (f"{f.compiles} ({f.cache_hits} read)" if f.cache_hits else str(f.compiles)),
            seconds(f.trace_s) if f.traces else "",
            seconds(f.lower_s) if f.lowerings else "",
            seconds(f.compile_s) if f.compiles else "",
            seconds(f.total_s),
        )
        for f in listed
    ]
    columns = (FUNCTION, "traced", "lowered", "compiled", "trace", "lower", "compile", "total")
    styles: list[Style] = ["faint" if f.is_eager else "" for f in listed]
    return tabulate(columns, lines, styles, note=CLOCK).without_empty_columns()


def _name(f: FunctionCount) -> str:
    where = below_packages(f.defined or "")
    return f"{f.function} (eager)" if f.is_eager else f"{f.function} {where}".rstrip()


def explain(w: Watch) -> Iterator[tuple[str, list[str]]]:
    """Why each function was compiled again, in the order of the table."""
    for f in w.functions:
        again = [c for c in w.recompiles if (c.function, c.defined) == (f.function, f.defined) and not f.is_eager]
        if again:
            lost = sum(c.total_s for c in again)
            yield f"{one_line(_name(f))}: compiled again, {seconds(lost)}", _reasons(again)


def _reasons(again: list[Compile]) -> list[str]:
    """Equal ones together, those that cost most first."""
    alike = group_by(again, lambda c: (c.where, c.why))
    ranked = sorted(alike.items(), key=lambda item: -sum(c.total_s for c in item[1]))
    lines = [
        f"{where or 'at an unknown line'}  {one_line(why)}" + (f" ({len(cs)} times)" if len(cs) > 1 else "")
        for (where, why), cs in ranked
    ]
    return list_some(lines, MOST_REASONS, "reasons")


def list_steps(found: WatchedSteps) -> list[Block]:
    """In which steps something was compiled: those that follow one another with as many programs share a line."""
    where = f" {found.defined}" if found.defined else ""
    head = f"{plural(len(found.steps), 'step')}, each a call of {one_line(found.function)}{where}"
    stretches = list(_stretches(found.steps))
    listed = [(first, last, ones) for first, last, ones in stretches if ones[0].programs]
    lines = [f"before the first step: {_describe_step([found.before])}"]
    lines += [
        f"{f'step {first}' if first == last else f'steps {first} – {last}'}: {_describe_step(ones)}"
        for first, last, ones in listed[:MOST_STEPS]
    ]
    if more := listed[MOST_STEPS:]:
        lines.append(f"and {sum(len(ones) for _, _, ones in more)} more steps in which something was compiled")
    lines += [] if found.steps[-1].programs else [f"from step {stretches[-1][0]} on: nothing"]
    return [Heading(head), *list_lines(lines)]


def _stretches(steps: Sequence[StepCompiles]) -> Iterator[tuple[int, int, list[StepCompiles]]]:
    """(first, last, steps) with the same numbers of programs, counted from 1."""
    for _, group in groupby(enumerate(steps, 1), lambda one: (one[1].programs, one[1].again)):
        places, ones = zip(*group, strict=True)
        yield places[0], places[-1], list(ones)


def _describe_step(ones: Sequence[StepCompiles]) -> str:
    """2 programs each, 1 of them recompiled, 1.20 s"""
    one, spent_s = ones[0], sum(one.spent_s for one in ones)
    if not one.programs:
        return "nothing"
    each = " each" if len(ones) > 1 else ""
    again = f", {plural(one.again, 'recompilation')}{each}" if one.again else ""
    return f"{plural(one.programs, 'program')} compiled{each}{again}, {seconds(spent_s)}"


def remarks(w: Watch) -> Iterator[Remark]:
    if w.lost_events:
        why = "jax.monitoring.clear_event_listeners() was called inside: compilations can be missing"
        yield Remark("lost-events", "warning", why)
    yield from w.remarks
    if w.threads == "all" and w.wall_s is not None:
        yield Remark("threads", "info", "times of all threads are added up, and can overlap")
    if (left := len(w.functions) - MOST_FUNCTIONS) > 0:
        yield Remark("functions", "info", f"{left} more functions are not shown")


MOST_TRANSFERS = 20
"""Lines of a table: with thousands of lines, the first would scroll out of sight."""
DIRECTIONS: tuple[Direction, ...] = ("host to device", "device to host")


def document_of_transfers(found: Transfers) -> Document:
    blocks: list[Block] = []
    for direction in DIRECTIONS:
        listed = found.of(direction)
        blocks += [Heading(transfers_heading(found, direction)), *([transfers_grid(listed)] if listed else [])]
    return Document((*blocks, *list_remarks(found.remarks)))


def transfers_heading(found: Transfers, direction: Direction) -> str:
    """host to device, not asked for: 20 transfers, 80 B"""
    if (count := found.count(direction)) is None:
        return f"{direction}: not seen"
    moved = f"{plural(count, 'transfer')}, {size(sum(t.size_bytes for t in found.of(direction)))}"
    return f"{direction}, implicit: {moved if count else 'none'}"


def transfers_grid(listed: list[ObservedTransfer]) -> Table:
    """Omits the column of times if no time is known."""
    lines = [
        (
            str(t.count),
            size(t.size_bytes),
            "" if t.elapsed_s is None else seconds(t.elapsed_s),
            f"{_truncate(t.where or 'an unknown line')}: {_truncate(t.by)}, {_truncate(t.what)}",
        )
        for t in listed[:MOST_TRANSFERS]
    ]
    more = f"and {len(listed) - MOST_TRANSFERS} more that moved less" if len(listed) > MOST_TRANSFERS else ""
    return tabulate(("times", "bytes", "waited", LINE), lines, note=more).without_empty_columns()


def _truncate(text: str) -> str:
    """A name on one line; the end of a long path says more than its beginning."""
    line = one_line(text)
    return line if len(line) <= 80 else f"…{line[-79:]}"


def document_of_cache(found: CacheUse) -> Document:
    facts, found_odd = Facts((Section("persistent cache", tuple(cache_rows(found))),)), tuple(cache_remarks(found))
    return Document((facts, *([Remarks(found_odd)] if found_odd else [])))


def cache_rows(found: CacheUse) -> Iterator[TextRow]:
    if not found.is_enabled:
        is_open = found.is_enabled is None
        yield TextRow("state", "" if is_open else "off", "the block has not ended" if is_open else found.why_off or "")
        return
    how = {True: "", False: ", which cannot be written to", None: "; whether it can be written is not known"}
    yield TextRow("state", "on", f"{found.directory}{how[found.is_writable]}")
    if found.after:
        before = found.before.entries if found.before else 0
        there = f"{size(found.after.size_bytes)}; {before} when it began"
        yield TextRow("in the folder", str(found.after.entries), there)
    fates: dict[Fate, str] = {
        "hit": "read from the cache",
        "written": "compiled, and written to the cache",
        "too quick": f"compiled in less than the threshold of {_threshold(found)}, and not kept",
        "not kept": "compiled, and not kept: a callback, a small size, or compiled before the folder was set",
    }
    for fate, what in fates.items():
        # Always show the first two, even if their count is 0.
        if (count := len(found.of(fate))) or fate in ("hit", "written"):
            spent = f"; took {seconds(found.total_s(fate))}" if count else ""
            yield TextRow(fate, str(count), what + spent)


def _threshold(found: CacheUse) -> str:
    return "not known" if found.min_compile_time_s is None else seconds(found.min_compile_time_s)


def cache_remarks(found: CacheUse) -> Iterator[Remark]:
    compiled = [program for program in found.programs if program.fate != "hit"]
    if found.is_enabled is False and compiled:
        spent = f"{plural(len(compiled), 'program')} took {seconds(sum(p.elapsed_s for p in compiled))} to compile"
        keeps = "JAX_COMPILATION_CACHE_DIR=FOLDER keeps programs that compile for longer than the threshold"
        yield Remark("cache-off", "info", f"{spent}, and will again in the next process; {keeps}")
    if found.is_enabled and found.is_writable is False:
        yield Remark("cache-unwritable", "warning", f"{found.directory} cannot be written to: nothing is kept")
    if found.keeping_setting:
        spent = seconds(found.total_s("too quick"))
        yield Remark(
            "cache-threshold",
            "warning",
            f"{plural(len(found.of('too quick')), 'program')} cost {spent} here and will again in the next "
            f"process: each compiled in less than {_threshold(found)}. To keep them: {found.keeping_setting}",
        )
    if not found.is_reliable:
        yield Remark("lost-events", "warning", "JAX's listeners were cleared during the block: programs are missing")
