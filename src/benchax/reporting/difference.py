"""The differences between two inspections, as a document: numbers, operations, and the texts as `diff -u` shows
them."""

from __future__ import annotations

from collections.abc import Sequence

from benchax.reporting.document import Block, Document, Heading, Paragraph, TableColumn, list_lines, tabulate
from benchax.reporting.program_text import diff_text
from benchax.results.difference import Difference, NumberChange, TextDifference
from benchax.units import count, percent, size

TITLES = {"jaxpr": "jaxpr", "stablehlo": "StableHLO", "hlo": "optimised HLO"}


def document(found: Difference, show: Sequence[str] = (), *, full: bool = False) -> Document:
    """Numbers, operations and texts.

    Args:
        show: the stages whose texts the document shows; if empty, the first stage that differs.
    """
    heads = list_lines((f"before  {found.before}", f"after   {found.after}"))
    if found.is_none:
        nothing = Paragraph("no difference in what both know", "title")
        return Document((*heads, nothing, *_texts(found, show, full)))
    tables = [
        *_table("numbers", found.numbers),
        *_table("primitives of the jaxpr", found.primitives),
        *_table("operations of the optimised program", found.opcodes),
        *_table("operations by line", found.line_flops),
        *_table("bytes by line", found.line_bytes),
    ]
    same = [Paragraph(f"unchanged: {', '.join(found.unchanged)}", "faint")] if found.unchanged else []
    return Document((*heads, *tables, *same, *_texts(found, show, full)))


def _table(title: str, changes: Sequence[NumberChange]) -> list[Block]:
    if not changes:
        return []
    lines = [(c.name, _value(c, c.before), _value(c, c.after), _by(c)) for c in changes]
    return [Heading(title), tabulate((TableColumn("what", "names"), "before", "after", "change"), lines)]


def _value(change: NumberChange, value: float | None) -> str:
    if value is None:
        return "not known"
    if change.unit == "bytes":
        return size(value)
    # Whole numbers as they are: of 5000 operations, one less is news.
    return str(int(value)) if change.unit == "count" else count(value, "FLOP", digits=4)


def _by(change: NumberChange) -> str:
    """Added, removed, or by how much."""
    if change.before is None or change.after is None:
        return ""
    if change.before == 0:
        return "new"
    if change.after == 0:
        return "gone"
    more = change.after / change.before - 1
    return f"{'+' if more > 0 else ''}{percent(more)}"


def _texts(found: Difference, show: Sequence[str], full: bool) -> list[Block]:
    blocks: list[Block] = []
    first = next((each.stage for each in found.texts if not each.is_same), None)
    for each in found.texts:
        is_shown = each.stage in show if show else each.stage == first
        line = f"{TITLES[each.stage]}: {_describe(each, is_shown)}"
        blocks += [Heading(line), diff_text(each.unified, full)] if is_shown and not each.is_same else [Paragraph(line)]
    return blocks + [
        Paragraph(f"{TITLES.get(absent.what, absent.what)}: not compared, because {absent.why}")
        for absent in found.absent
    ]


def _describe(each: TextDifference, is_shown: bool) -> str:
    if each.is_same:
        return "the same"
    where = "" if is_shown else f"; --show {each.stage} shows them"
    return f"{each.added} {'line' if each.added == 1 else 'lines'} added, {each.removed} removed{where}"
