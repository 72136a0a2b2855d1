"""A profile in tables: the hottest operations, idle devices, the compiler, what stayed in memory, and the files.

A profile without operations is not shown as an empty table: its remarks say why there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rich.cells import cell_len, set_cell_size

from benchax.reporting import timeline
from benchax.reporting.document import (
    Block,
    Document,
    Facts,
    Heading,
    Section,
    Table,
    TableCell,
    TableColumn,
    TextRow,
    list_lines,
    list_remarks,
)
from benchax.reporting.tables import WHERE
from benchax.results.profile import Device, Op, Profile
from benchax.units import count, percent, seconds, size

COLUMNS = (
    TableColumn("operation", "names"),
    *map(TableColumn, ("self time", "share", "calls", "a call")),
    WHERE,
)
TOP = 15
"""Operations that are shown without `details`."""
PASSES, ARRAYS, GAPS = 5, 5, 3
SCOPE, NAME, HLO = 44, 24, 96
"""Widths to which long texts are cut, in columns of a terminal; with `details` they are not."""


def document(p: Profile, details: bool = False) -> Document:
    """With `details` every operation, uncut, with its line of HLO."""
    blocks: list[Block] = [Heading(p.title or "profile", 1, (_where(p),))]
    if p.ops:
        blocks += [grid(p, details), *_lines(p, details)]
    blocks += [Facts((section,), "words") for section in sections(p)]
    return Document((*blocks, *list_remarks(p.remarks)))


def _where(p: Profile) -> str:
    runs = f"{_count_text(len(p.runs), 'run')} of programs" if p.runs else ""
    return " · ".join(part for part in (p.backend, runs, _count_text(p.n_events, "event")) if part)


def _count_text(number: int, what: str) -> str:
    """1 run; 2 runs."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def grid(p: Profile, details: bool = False) -> Table:
    """One line for each operation, the hottest first; on a page its HLO can be pointed at."""
    shown = p.ops if details else p.ops[:TOP]
    several = len({op.module for op in p.ops}) > 1
    rows: list[tuple[TableCell, ...]] = []
    for op in shown:
        name, *others = _line(op, several, details)
        rows.append((TableCell(name, hint=op.hlo or ""), *map(TableCell, others)))
    return Table(COLUMNS, tuple(rows), _describe_rest(p, details))


def _line(op: Op, several: bool, details: bool) -> tuple[str, ...]:
    name = f"{op.module}: {op.name}" if several and op.module else op.name
    where = " ".join(part for part in (_file(op.source, details), _scope(op, details)) if part)
    return (
        _truncate(name, NAME, details),
        seconds(op.self_s),
        percent(op.share),
        count(op.calls),
        seconds(op.per_call_s),
        _truncate(where or op.category, SCOPE, details),
    )


def _scope(op: Op, details: bool) -> str:
    """Without the outermost part, which is the program: jit(f)/mm/dot as mm/dot."""
    scope = op.scope or ""
    return scope if details or "/" not in scope else scope.partition("/")[2]


def _file(source: str | None, details: bool) -> str:
    return (source or "") if details else (source or "").replace("\\", "/").rpartition("/")[2]


def _truncate(text: str, width: int, details: bool) -> str:
    """On one line, and not wider than `width`."""
    line = " ".join(text.split())
    return line if details or cell_len(line) <= width else set_cell_size(line, width - 1).rstrip() + "…"


def _describe_rest(p: Profile, details: bool) -> str:
    """What the operations that are not shown come to."""
    others = () if details else p.ops[TOP:]
    if not others:
        return ""
    together = sum(op.self_s for op in others)
    share = sum(op.share for op in others)
    return f"and {_count_text(len(others), 'more operation')}: {seconds(together)}, {percent(share)}"


def _lines(p: Profile, details: bool) -> tuple[Block, ...]:
    """The HLO of the hottest few; of all with `details`."""
    shown = [op for op in (p.ops if details else p.ops[:3]) if op.hlo]
    listed = list_lines((_truncate(op.hlo or "", HLO, details) for op in shown), "faint")
    return (Heading("HLO"), *listed) if listed else ()


def sections(p: Profile) -> list[Section]:
    """All but the operations; a part that holds nothing is left out."""
    parts = [
        ("devices", [row for device in p.devices for row in _device(device)] + _runs(p)),
        ("compiler", _compiler(p)),
        ("memory", _memory(p)),
        ("memory over time", timeline.rows(p.timeline) if p.timeline else []),
        ("files", [TextRow(kind, path) for kind, path in p.files.items()]),
    ]
    return [Section(title, tuple(rows)) for title, rows in parts if rows]


def _device(device: Device) -> list[TextRow]:
    share = f", {percent(device.busy_s / device.span_s)} of {seconds(device.span_s)}" if device.span_s else ""
    gaps = [
        TextRow(
            "gap",
            seconds(gap.length_s),
            f"between {_truncate(gap.before, NAME, False)} and {_truncate(gap.after, NAME, False)}",
        )
        for gap in device.gaps[:GAPS]
    ]
    busy = TextRow(device.name, f"busy {seconds(device.busy_s)}{share}", f"idle {seconds(device.idle_s)}")
    return [busy, *_communication(device), *gaps]


def _communication(device: Device) -> list[TextRow]:
    """Nothing where there is none, or it is not known."""
    if not device.communication_s:
        return []
    share = f"{seconds(device.communication_s)}, {percent(device.communication_s / device.busy_s)} of busy"
    if device.exposed_s is None:
        return [TextRow("communication", share, "what ran beside it is not known")]
    return [TextRow("communication", share, f"{seconds(device.exposed_s)} of it with nothing else under way")]


def _runs(p: Profile) -> list[TextRow]:
    """Device time of a run, by program."""
    programs = dict.fromkeys(run.module for run in p.runs)
    rows: list[TextRow] = []
    for program in programs:
        times = [run.device_s for run in p.runs if run.module == program]
        spread = f"{seconds(min(times))} to {seconds(max(times))}, " if len(times) > 1 else ""
        rows.append(
            TextRow(
                f"a run of {_truncate(program, NAME, False)}",
                seconds(median(times)),
                f"{spread}{_count_text(len(times), 'run')}",
            )
        )
    return rows


def _compiler(p: Profile) -> list[TextRow]:
    if p.compile_s is None:
        return []
    passes = [
        TextRow(_truncate(one.name, NAME, False), seconds(one.self_s), _count_text(one.calls, "call"))
        for one in p.passes[:PASSES]
    ]
    return [TextRow("all passes", seconds(p.compile_s), f"{len(p.passes)} of them"), *passes]


def _memory(p: Profile) -> list[TextRow]:
    if p.left_over is None or p.live_bytes_before is None or p.live_bytes_after is None:
        return []
    alive = TextRow("alive before, after", f"{size(p.live_bytes_before)}, {size(p.live_bytes_after)}")
    rows = [
        TextRow("new and alive", f"{one.dtype}{_dimensions(one.shape)}", f"{one.count} ×, {size(one.size_bytes)}")
        for one in p.left_over[:ARRAYS]
    ]
    more = p.left_over[ARRAYS:]
    rest = (
        [TextRow("and", _count_text(len(more), "more kind"), size(sum(one.size_bytes for one in more)))] if more else []
    )
    return [alive, *rows, *rest]


def _dimensions(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
