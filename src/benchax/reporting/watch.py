"""A watch in words and tables: what was compiled, what it cost, and why; the functions that cost most first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from benchax.model import Remark
from benchax.reporting.chart import Style
from benchax.reporting.document import (
    Block,
    Document,
    Facts,
    Heading,
    Remarks,
    Section,
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
CLOCK = "seconds by JAX's own clock, which is not monotonic: good for a ranking, not as a measurement"


def document(w: Watch) -> Document:
    blocks: list[Block] = [Heading(heading(w), 1, (cache(w),))]
    # What can be changed comes first: a table of eager operations may be long.
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
    own = len(w.compiles) - len(w.eager)
    parts = [plural(own, "program") + " of jitted functions"]
    parts[0] += f", {plural(len(w.recompiles), 'recompilation')}" if w.recompiles else ""
    parts += [f"{len(w.eager)} of eager operations"] if w.eager else []
    if w.wall_s is None:
        return " · ".join([*parts, seconds(w.total_s)])
    share = "" if w.share is None else f" ({percent(w.share)})"
    return " · ".join([*parts, f"{seconds(w.total_s)} of {seconds(w.wall_s)}{share}"])


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


def explain(w: Watch) -> list[tuple[str, list[str]]]:
    """Why each function was compiled again, in the order of the table."""
    found: list[tuple[str, list[str]]] = []
    for f in w.functions:
        again = [c for c in w.recompiles if (c.function, c.defined) == (f.function, f.defined) and not f.is_eager]
        if again:
            lost = sum(c.total_s for c in again)
            found.append((f"{one_line(_name(f))}: compiled again, {seconds(lost)}", _reasons(again)))
    return found


def _reasons(again: list[Compile]) -> list[str]:
    """Equal ones together, those that cost most first."""
    alike: dict[tuple[str | None, str], list[Compile]] = {}
    for c in again:
        alike.setdefault((c.where, c.why), []).append(c)
    ranked = sorted(alike.items(), key=lambda item: -sum(c.total_s for c in item[1]))
    lines = [
        f"{where or 'at an unknown line'}  {one_line(why)}" + (f" ({len(cs)} times)" if len(cs) > 1 else "")
        for (where, why), cs in ranked[:MOST_REASONS]
    ]
    return lines + ([f"and {len(ranked) - MOST_REASONS} more reasons"] if len(ranked) > MOST_REASONS else [])


def list_steps(found: WatchedSteps) -> list[Block]:
    """In which steps something was compiled: those that follow one another with as many programs share a line."""
    where = f" {found.defined}" if found.defined else ""
    head = f"{plural(len(found.steps), 'step')}, each a call of {one_line(found.function)}{where}"
    stretches = _stretches(found.steps)
    is_steady = not found.steps[-1].programs
    listed = [(first, last, ones) for first, last, ones in stretches if ones[0].programs]
    lines = [f"before the first step: {_describe_step([found.before])}"]
    lines += [f"{_describe_numbers(first, last)}: {_describe_step(ones)}" for first, last, ones in listed[:MOST_STEPS]]
    if more := listed[MOST_STEPS:]:
        lines.append(f"and {sum(len(ones) for _, _, ones in more)} more steps in which something was compiled")
    lines += [f"from step {stretches[-1][0]} on: nothing"] if is_steady else []
    return [Heading(head), *list_lines(lines)]


def _stretches(steps: Sequence[StepCompiles]) -> list[tuple[int, int, list[StepCompiles]]]:
    """(first, last, steps) with the same numbers of programs, counted from 1."""
    found: list[tuple[int, int, list[StepCompiles]]] = []
    numbered = enumerate(steps, 1)
    for _, group in groupby(numbered, lambda one: (one[1].programs, one[1].again)):
        places, ones = zip(*group, strict=True)
        found.append((places[0], places[-1], list(ones)))
    return found


def _describe_numbers(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} – {last}"


def _describe_step(ones: Sequence[StepCompiles]) -> str:
    """2 programs each, 1 of them recompiled, 1.20 s"""
    one, spent_s = ones[0], sum(one.spent_s for one in ones)
    if not one.programs:
        return "nothing"
    each = " each" if len(ones) > 1 else ""
    again = f", {plural(one.again, 'recompilation')}{each}" if one.again else ""
    return f"{plural(one.programs, 'program')} compiled{each}{again}, {seconds(spent_s)}"


def remarks(w: Watch) -> list[Remark]:
    notes = list(w.remarks)
    if w.lost_events:
        why = "jax.monitoring.clear_event_listeners() was called inside: there might have been more than is listed"
        notes.insert(0, Remark("lost-events", "warning", why))
    if w.threads == "all" and w.wall_s is not None:
        notes.append(Remark("threads", "info", "the times of all threads are added up, and can overlap"))
    if left := len(w.functions) - MOST_FUNCTIONS:
        notes += [Remark("functions", "info", f"{left} more functions are not shown")] if left > 0 else []
    return notes


MOST_TRANSFERS = 20
"""Lines of a table: with thousands of lines, the first would scroll out of sight."""
DIRECTIONS: tuple[Direction, ...] = ("host to device", "device to host")


def document_of_transfers(found: Transfers) -> Document:
    blocks: list[Block] = []
    for direction in DIRECTIONS:
        listed = found.of(direction)
        blocks.append(Heading(transfers_heading(found, direction)))
        if listed:
            blocks.append(transfers_grid(listed))
    return Document((*blocks, *list_remarks(found.remarks)))


def transfers_heading(found: Transfers, direction: Direction) -> str:
    """host to device, not asked for: 20 transfers, 80 B"""
    count = found.count(direction)
    if count is None:
        return f"{direction}: not seen"
    if not count:
        return f"{direction}, not asked for: none"
    moved = size(sum(t.size_bytes for t in found.of(direction)))
    return f"{direction}, not asked for: {plural(count, 'transfer')}, {moved}"


def transfers_grid(listed: list[ObservedTransfer]) -> Table:
    """Omits the column of times if no time is known."""
    has_time = any(t.elapsed_s is not None for t in listed)
    shown = listed[:MOST_TRANSFERS]
    lines = [
        (
            str(t.count),
            size(t.size_bytes),
            *([("" if t.elapsed_s is None else seconds(t.elapsed_s))] if has_time else []),
            f"{_truncate(t.where or 'a line that cannot be seen')}: {_truncate(t.by)}, {_truncate(t.what)}",
        )
        for t in shown
    ]
    more = f"and {len(listed) - MOST_TRANSFERS} more that moved less" if len(listed) > MOST_TRANSFERS else ""
    return tabulate(("times", "bytes", *(["waited"] if has_time else []), LINE), lines, note=more)


def _truncate(text: str) -> str:
    """A name on one line; the end of a long path says more than its beginning."""
    line = one_line(text)
    return line if len(line) <= 80 else f"…{line[-79:]}"


def document_of_cache(found: CacheUse) -> Document:
    facts = Facts((Section("persistent cache", tuple(cache_rows(found))),))
    remarks = tuple(cache_remarks(found))
    return Document((facts, *([Remarks(remarks)] if remarks else [])))


def cache_rows(found: CacheUse) -> list[TextRow]:
    if found.is_enabled is None:
        return [TextRow("state", "", "the block has not ended")]
    if not found.is_enabled:
        return [TextRow("state", "off", found.why_off or "")]
    fates: dict[Fate, str] = {
        "hit": "read from the cache",
        "written": "compiled, and written to the cache",
        "too quick": f"compiled in less than the threshold of {_threshold(found)}, and not kept",
        "not kept": "compiled, and not kept: a callback, a small size, or compiled before the folder was set",
    }
    # The first two are named even if there was none.
    listed: list[Fate] = [fate for fate in fates if fate in ("hit", "written") or found.of(fate)]
    return [
        TextRow("state", "on", _place(found)),
        *([TextRow("in the folder", *_describe_entries(found))] if found.after else []),
        *(_line(found, fate, fates[fate]) for fate in listed),
    ]


def _place(found: CacheUse) -> str:
    how = {True: "", False: ", which cannot be written to", None: "; whether it can be written is not known"}
    return f"{found.directory}{how[found.is_writable]}"


def _describe_entries(found: CacheUse) -> tuple[str, str]:
    """(how many entries, how large they are and how many there were)"""
    assert found.after is not None
    before = found.before.entries if found.before else 0
    return str(found.after.entries), f"{size(found.after.size_bytes)}; {before} when it began"


def _line(found: CacheUse, fate: Fate, what: str) -> TextRow:
    count = len(found.of(fate))
    return TextRow(fate, str(count), f"{what}; took {seconds(found.total_s(fate))}" if count else what)


def _threshold(found: CacheUse) -> str:
    return "not known" if found.min_compile_time_s is None else seconds(found.min_compile_time_s)


def cache_remarks(found: CacheUse) -> list[Remark]:
    listed: list[Remark] = []
    compiled = [program for program in found.programs if program.fate != "hit"]
    if found.is_enabled is False and compiled:
        spent = seconds(sum(program.elapsed_s for program in compiled))
        listed.append(
            Remark(
                "cache-off",
                "info",
                f"{plural(len(compiled), 'program')} took {spent} to compile, and will again in the next process; "
                "JAX_COMPILATION_CACHE_DIR=FOLDER keeps what compiles for longer than the threshold",
            )
        )
    if found.is_enabled and found.is_writable is False:
        listed.append(Remark("cache-unwritable", "warning", f"{found.directory} cannot be written to: nothing is kept"))
    if found.keeping_setting:
        spent = seconds(found.total_s("too quick"))
        listed.append(
            Remark(
                "cache-threshold",
                "warning",
                f"{plural(len(found.of('too quick')), 'program')} cost {spent} here and will again in the next "
                f"process: each compiled in less than {_threshold(found)}. To keep them: {found.keeping_setting}",
            )
        )
    if not found.is_reliable:
        listed.append(
            Remark("lost-events", "warning", "JAX's listeners were cleared during the block: programs are missing")
        )
    return listed
