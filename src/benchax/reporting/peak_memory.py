"""The memory of a call at its peak, as a document: the values in it, their lines, and what would free them."""

from __future__ import annotations

from collections.abc import Iterator

from benchax.reporting.document import Block, Heading, Paragraph, Sparkline, Table, TableColumn, list_lines
from benchax.reporting.inspection_tables import OPERATION, Line, build_table, first_rows, near
from benchax.reporting.tables import LINE
from benchax.results.inspection import Inspection
from benchax.results.memory import PeakMemory, highest_of_stretches
from benchax.units import percent, size

MOST_BARS = 60
"""The number of bars that fit next to a narrow terminal's margin."""


def show(found: Inspection, full: bool) -> list[Block]:
    """The temporaries that are needed at once, at most."""
    if found.peak is None:
        why = found.why_absent("peak") or "nobody tells"
        return [Heading("temporaries at their peak"), Paragraph(f"not known, because {why}", "faint")]
    return [
        Heading(f"temporaries at their peak: {size(found.peak.live_bytes)}"),
        Paragraph(_describe(found.peak)),
        Sparkline(_bars(found.peak), "what is needed, over the program", is_linear=True),
        *(first_rows(table, full) for table in [_values(found.peak)] if table),
        *list_lines(_advise(found)),
    ]


def _describe(peak: PeakMemory) -> str:
    where = f", {near(peak.at.source)}" if peak.at.source else ""
    gaps = peak.planned_bytes - peak.live_bytes
    beyond = f"; the plan has {size(gaps)} more, for alignment and gaps" if gaps else ", which is all that the plan has"
    return f"at {peak.at.operation}, instruction {peak.position + 1} of {peak.instructions}{where}{beyond}"


def _bars(peak: PeakMemory) -> tuple[int, ...]:
    return tuple(highest_of_stretches(peak.timeline, MOST_BARS))


def _values(peak: PeakMemory) -> Table | None:
    lines: list[Line] = [
        (v.operation, v.spec, size(v.size_bytes), percent(v.size_bytes / peak.live_bytes), v.role, near(v.source))
        for v in peak.values
    ]
    value, role = TableColumn("value", "names"), TableColumn("role", "words")
    return build_table((OPERATION, value, "size", "share", role, LINE), lines)


def _advise(found: Inspection) -> Iterator[str]:
    """Yields bounds from the memory plan alone. Only the plan of the changed program shows the real saving."""
    kept = found.peak.sum_of("residual") if found.peak else 0
    if kept:
        yield (
            f"{size(kept)} are residuals, kept on the way forward for the way back: jax.checkpoint would compute them "
            "again, and save so much at most"
        )
    possible = found.donation.possible_bytes if found.donation else None
    if possible:
        yield (
            f"beside the temporaries: outputs could have the memory of {size(possible)} of arguments, if those were "
            "donated (jax.jit(f, donate_argnums=...))"
        )
