"""Shows what the compiler makes of a call: an overview, or one of its parts; for terminals, pipes and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from rich.console import Group, RenderableType
from rich.text import Text

from benchax.reporting import inspection_tables as tables
from benchax.reporting import terminal
from benchax.reporting.document import Table
from benchax.reporting.program_text import program_text
from benchax.results.difference import Stage
from benchax.results.inspection import Inspection
from benchax.results.roofline import Roofline
from benchax.units import size

TEXTS: tuple[Stage, ...] = ("jaxpr", "stablehlo", "hlo")
PARTS = ("overview", *TEXTS, "cost", "memory", "constants", "donation", "collectives")
"""What can be drawn. A graph is a file (`artifacts/graph.py`)."""


def parts(
    found: Inspection, show: Sequence[str] = ("overview",), *, full: bool = False, roof: Roofline | None = None
) -> list[RenderableType]:
    """What is to be printed, one after the other; a `ProgramText` as it stands, without breaking its lines.

    Args:
        show: of `PARTS`. One text alone comes without a heading, so that it can go into a file.
        full: nothing is folded.
        roof: beside the work; None leaves it out.
    """
    if len(show) == 1 and show[0] in TEXTS and _text(found, show[0]) is not None:
        return _program(found, show[0], full)
    title, where = tables.heading(found)
    drawn: list[RenderableType] = [Text(title, style="bold"), Text(where, style="dim")]
    for part in show:
        if part in TEXTS:
            drawn += [Text(), Text(part, style="bold"), *_program(found, part, full)]
        elif part in ("overview", "cost"):
            drawn += _overview(found, part, full, roof)
        else:
            drawn += _DRAWN[part](found, full)
    if "overview" in show and found.remarks:
        drawn.append(terminal.remarks(found.remarks))
    return drawn


def text(found: Inspection) -> str:
    return terminal.to_text(Group(*parts(found)))


def html(found: Inspection) -> str:
    """The overview, and the texts to be unfolded."""
    blocks = [f"<pre style='white-space:pre-wrap'>{escape(text(found))}</pre>"]
    for stage in TEXTS:
        whole = _text(found, stage)
        if whole is not None:
            body = escape(program_text(stage, whole).text)
            blocks.append(f"<details><summary>{stage}</summary><pre>{body}</pre></details>")
    return f"<div class='benchax'>{''.join(blocks)}</div>"


def _overview(found: Inspection, part: str, full: bool, roof: Roofline | None) -> list[RenderableType]:
    sections = tables.overview(found, roof) if part == "overview" else tables.cost(found, roof)
    table = ("primitives", tables.primitives(found)) if part == "overview" else ("loops", tables.loops(found))
    return [*map(terminal.render_section, sections), *_table(*table, full=full)]


def _memory(found: Inspection, full: bool) -> list[RenderableType]:
    drawn = [
        terminal.render_section(tables.memory_section(found)),
        *_table("buffers", tables.buffers(found), full=full),
    ]
    if found.buffers is None:
        return [*drawn, *_nothing(found, "buffers")]
    if found.buffers.method == "program text":
        drawn.append(_faint("arguments, outputs and constants only: the plan itself could not be read"))
    missing = ", ".join(f"{size(n)} of kind {kind}" for kind, n in found.buffers.unattributed)
    return [*drawn, _faint(f"not attributed to any buffer: {missing}")] if missing else drawn


def _constants(found: Inspection, full: bool) -> list[RenderableType]:
    drawn: list[RenderableType] = []
    known = found.constants
    listed = (known and known.captured, known and known.baked_in)
    names = ("constants.captured", "constants.baked_in")
    for (title, table), constants, what in zip(tables.constants(found), listed, names, strict=True):
        if constants is None:
            drawn += [Text(), Text(title, style="bold"), *_nothing(found, what)]
        elif table is None:
            drawn += [Text(), Text(title, style="bold"), Text("  none")]
        else:
            total = f"{title}: {size(sum(c.size_bytes for c in constants))}"
            drawn += _table(total, table, full=full)
    return drawn


def _donation(found: Inspection, full: bool) -> list[RenderableType]:
    if found.donation is None:
        return [Text(), Text("donation", style="bold"), *_nothing(found, "donation")]
    if not found.donation.arguments:
        return [Text(), Text("donation", style="bold"), Text("  no argument is donated")]
    aliased = found.donation.aliased_bytes
    each = found.donation.arguments
    arrays = f"{sum(bool(a.is_aliased) for a in each)} of {len(each)} arrays"
    taken = "not known how much" if aliased is None else f"{arrays}, {size(aliased)}"
    title = f"donation: {taken} of {size(found.donation.asked_bytes)}, reused by outputs"
    return _table(title, tables.donation(found), full=full)


def _collectives(found: Inspection, full: bool) -> list[RenderableType]:
    if found.collectives is None:
        return [Text(), Text("collectives", style="bold"), *_nothing(found, "collectives")]
    if not found.collectives.calls:
        return [Text(), Text("collectives", style="bold"), Text("  none: the devices say nothing to one another")]
    total = found.collectives.bytes_per_call
    amount = "bytes not known, because of a loop of unknown length" if total is None else f"{size(total)} per call"
    split = f"over {found.collectives.partitions} devices"
    return _table(f"collectives: {amount}, {split}", tables.collectives(found), full=full)


_DRAWN: dict[str, Callable[[Inspection, bool], list[RenderableType]]] = {
    "memory": _memory,
    "constants": _constants,
    "donation": _donation,
    "collectives": _collectives,
}


def _table(title: str, table: Table | None, *, full: bool) -> list[RenderableType]:
    if table is None:
        return []
    shown = tables.first_rows(table, full)
    rest = [_faint(shown.note)] if shown.note else []
    return [Text(), Text(title, style="bold"), terminal.grid(shown), *rest]


def _program(found: Inspection, stage: str, full: bool) -> list[RenderableType]:
    whole = _text(found, stage)
    if whole is None:
        return _nothing(found, stage)
    known: Stage = next(each for each in TEXTS if each == stage)
    return [program_text(known, whole, full)]


def _text(found: Inspection, stage: str) -> str | None:
    return {"jaxpr": found.jaxpr.text if found.jaxpr else None, "stablehlo": found.stablehlo, "hlo": found.hlo}[stage]


def _nothing(found: Inspection, what: str) -> list[RenderableType]:
    return [_faint(f"not known, because {found.why_absent(what) or 'nobody tells'}")]


def _faint(sentence: str) -> Text:
    return Text(f"  {sentence}", style="dim")
