"""An inspection as charts: its work by scope and by line as areas, the plan of its memory, and the program as boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchax.reporting import inspection
from benchax.reporting.chart import Axis, Chart, Quantity, Tree
from benchax.reporting.document import Code, Document, Heading
from benchax.reporting.measurement_charts import chart_memory
from benchax.reporting.program_outline import make_outline
from benchax.reporting.trees import grow
from benchax.results.inspection import Inspection, LineWork

COMPILER = "(the compiler's own)"


def document(found: Inspection) -> Document:
    """As for a notebook, with charts before the texts of the program."""
    blocks = inspection.document_with_texts(found).blocks
    first = next((i for i, block in enumerate(blocks) if isinstance(block, Code)), len(blocks))
    program = () if found.operations is None else (Heading("program"), make_outline(found.operations))
    return Document((*blocks[:first], *charts(found), *program, *blocks[first:]))


def charts(found: Inspection) -> Iterator[Chart]:
    ways: tuple[tuple[str, Quantity, Callable[[LineWork], float]], ...] = (
        ("operations by scope and line", "flop", lambda work: work.flops),
        ("bytes by scope and line", "bytes", lambda work: work.bytes_accessed),
    )
    for title, quantity, value_of in ways:
        roots = grow((_path(work), value_of(work), work.source) for work in found.lines or ())
        if roots:
            yield Chart(Axis(), Axis(), (Tree(roots, quantity),), title)
    if found.memory is not None and (memory := chart_memory(found.memory)) is not None:
        yield memory


def _path(work: LineWork) -> list[str]:
    return [*(part for part in work.scope.split("/") if part), work.source or COMPILER]
