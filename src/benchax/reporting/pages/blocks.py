"""The blocks of documents as elements of a page, which `assets/page.css` gives their looks.

All texts go through `markup.element`. A chart is a figure with its data as JSON: scripts draw it when it comes into
view, and make its table.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any

from benchax.model import Remark
from benchax.reporting.chart import MARKS, Cells, Chart, Tree
from benchax.reporting.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    List,
    Outline,
    OutlineEntry,
    Paragraph,
    Remarks,
    Section,
    Sparkline,
    Table,
    TableCell,
    TextRow,
    tabulate_outline,
)
from benchax.reporting.html import draw_sparkline
from benchax.reporting.markup import Markup, begin, element
from benchax.reporting.pages.chart_data import DIGITS, encode_chart, finite_number

# Encodes outlines as plain values for JSON, from which `assets/outlines.js` draws boxes.
#
# An entry is a list without its empty end: [name, kind, values, detail, source, key + 1, reads, parts]. A list holds
# each text once, and entries hold the text's position in that list.


def encode_outline(outline: Outline) -> dict[str, Any]:
    texts: dict[str, int] = {"": 0}
    entries = [_encode_entry(entry, texts) for entry in outline.entries]
    columns = [[column.name, column.quantity] for column in outline.columns]
    return {
        "caption": outline.caption,
        "columns": columns,
        "totals": [finite_number(total, DIGITS) for total in outline.totals],
        "texts": list(texts),
        "entries": entries,
    }


def _encode_entry(entry: OutlineEntry, texts: dict[str, int]) -> list[Any]:
    words = (texts.setdefault(text, len(texts)) for text in (entry.name, entry.kind, entry.detail, entry.source))
    name, kind, detail, source = words
    values = [finite_number(value, DIGITS) for value in entry.values]
    parts = [_encode_entry(part, texts) for part in entry.parts]
    key = 0 if entry.key is None else entry.key + 1
    made = [name, kind, values, detail, source, key, list(entry.reads), parts]
    while made and made[-1] in (0, []):
        made.pop()
    return made


LEAST_PACKED = 400
MOST_OPEN = 6
"""A page with more parts than this shows them closed at first."""
SEVERITIES = {"error": "error: ", "warning": "warning: ", "info": ""}
"""The meaning of a mark, for readers who do not see it."""


def render_parts(documents: Sequence[Document]) -> Markup:
    """Renders the first document, then each other one as a part that opens. The controls that filter the parts come
    before the parts."""
    if not documents:
        return Markup("")
    targets = {title: f"part-{n}" for n, part in enumerate(documents) if n and (title := part.title)}
    first = _render_blocks(documents[0].blocks, 1, targets)
    is_open = len(documents) - 1 <= MOST_OPEN
    parts = [_render_part(part, f"part-{n}", is_open) for n, part in enumerate(documents) if n]
    return Markup(first + "".join(parts))


def _render_part(part: Document, id: str, is_open: bool) -> Markup:
    """Its title is what opens it."""
    head = next((block for block in part.blocks if isinstance(block, Heading)), Heading("…"))
    rest = [block for block in part.blocks if block is not head]
    title = element("summary", element("h2", head.text, css_class=head.style))
    content = (title, *_render_answers(head, 2), _render_blocks(rest, 2, {}))
    # An attribute without a value: there is no other way to say that it is open.
    opened = Markup(begin("details", css_class="part", id=id).removesuffix(">") + (" open>" if is_open else ">"))
    return Markup(opened + "".join(content) + "</details>")


def _render_blocks(blocks: Sequence[Block], level: int, targets: dict[str, str]) -> Markup:
    """Consecutive charts are side by side if there is room.

    Args:
        level: level of the heading above the blocks; a heading of level 1 takes it.
        targets: the places of parts by their titles.
    """
    found: list[Markup] = []
    for is_chart, group in groupby(blocks, lambda block: isinstance(block, Chart)):
        listed = chain.from_iterable(_render_block(block, level, targets) for block in group)
        found += [element("div", *listed, css_class="charts")] if is_chart else listed
    return Markup("".join(found))


def _render_block(block: Block, level: int, targets: dict[str, str]) -> Iterator[Markup]:
    match block:
        case Heading():
            yield from _render_heading(block, level)
        case Paragraph():
            yield element("p", block.text, css_class=block.style)
        case List():
            yield element("ul", *(element("li", item.text, css_class=item.style) for item in block.items))
        case Table():
            yield from _render_table(block, targets)
        case Facts():
            yield from (_render_section(section, block.kind, level) for section in block.sections)
        case Remarks():
            yield element("ul", *map(_render_remark, block.remarks), css_class="remarks")
        case Code():
            yield _render_code(block)
        case Sparkline():
            yield element("p", draw_sparkline(block), " ", block.caption)
        case Chart():
            yield _render_chart(block)
        case Outline():
            yield _render_outline(block, targets)


def _render_heading(heading: Heading, level: int) -> Iterator[Markup]:
    aside = [" ", element("small", heading.aside)] if heading.aside else []
    # Inside a part, whose title has level 2, all headings are one below it.
    depth = level if heading.level == 1 else level + 1
    yield element(f"h{depth}", heading.text, *aside, css_class=heading.style)
    yield from _render_answers(heading, level)


def _render_answers(heading: Heading, level: int) -> Iterator[Markup]:
    if heading.answers:
        yield _render_section(Section("", heading.answers), "numbers", level)
    yield from (element("p", text, css_class="below") for text in heading.below)


def _render_remark(remark: Remark) -> Markup:
    mark, style = MARKS[remark.severity]
    spoken = element("span", SEVERITIES[remark.severity], css_class="spoken")
    sign = element("span", mark, css_class=f"mark {style}", aria_hidden="true")
    return element("li", sign, spoken, remark.message)


def _render_code(code: Code) -> Markup:
    text = element("pre", element("code", code.text), tabindex="0", role="group", aria_label=code.title or "code")
    return element("details", element("summary", code.title), text) if code.title else text


# ---- facts and tables -------------------------------------------------------------------------------------------


def _render_section(section: Section, kind: str, level: int) -> Markup:
    rows = [_render_row(row, kind) for row in section.rows]
    title = [element(f"h{level + 1}", section.title)] if section.title else []
    table = element("div", element("table", *rows, css_class="facts"), css_class="wide")
    return element("section", *title, table)


def _render_row(row: TextRow, kind: str) -> Markup:
    value = element("td", row.value, css_class="n" if kind == "numbers" else "")
    detail = element("td", row.detail, css_class="d")
    # A row without a name goes on with the one above it.
    name = element("th", row.label, scope="row") if row.label else element("td")
    return element("tr", name, value, detail, css_class=row.style)


def _render_table(table: Table, targets: dict[str, str]) -> Iterator[Markup]:
    """A table that is too wide is scrolled, not the page."""
    kinds = [{"numbers": "n", "names": "c", "words": ""}[column.kind] for column in table.columns]
    named = zip(table.names, kinds, strict=True)
    # A head without a name would be read as one.
    names = [element("th", name, scope="col", css_class=kind) if name else element("td") for name, kind in named]
    head = [element("thead", element("tr", *names))] if any(table.names) else []
    rows = [element("tr", *_render_cells(row, kinds, targets)) for row in table.rows]
    yield element("div", element("table", *head, element("tbody", *rows)), css_class="wide")
    if table.note:
        yield element("p", table.note, css_class="faint")


def _render_cells(row: Sequence[TableCell], kinds: Sequence[str], targets: dict[str, str]) -> Iterator[Markup]:
    for cell, kind in zip(row, kinds, strict=True):
        place = targets.get(cell.text) if cell.text else None
        target = cell.link or (f"#{place}" if place else "")
        text = element("a", cell.text, href=target, css_class=cell.style) if target else cell.text
        yield element("td", text, css_class=f"{kind} {cell.style}".strip(), title=cell.hint)


# ---- charts -----------------------------------------------------------------------------------------------------


def _render_chart(chart: Chart) -> Markup:
    """The script fills the frame, and the table when that is opened."""
    script = _embed(encode_chart(chart))
    caption = element("figcaption", chart.caption)
    note = [element("p", chart.note, css_class="faint")] if chart.note else []
    return element("figure", caption, *note, element("div", css_class="plot"), script, css_class=_shape(chart))


def _render_outline(outline: Outline, targets: dict[str, str]) -> Markup:
    """The table is for browsers without scripts, and for paper. With scripts, boxes replace it."""
    table = tabulate_outline(outline)
    caption = element("p", outline.caption, css_class="title")
    folded = element("div", *_render_table(replace(table, note=""), targets), css_class="folded")
    note = element("p", table.note, css_class="faint")
    boxes = element("div", css_class="boxes")
    return element("section", caption, boxes, folded, note, _embed(encode_outline(outline)), css_class="outline")


def _embed(value: Any) -> Markup:
    """JSON in which no browser finds the end of the block, or a comment; long data are packed (zlib, then base64):
    numbers are most of a page, and take less than half of the room."""
    data = json.dumps(value, allow_nan=False, separators=(",", ":"))
    if len(data) >= LEAST_PACKED:
        packed = base64.b64encode(zlib.compress(data.encode())).decode()
        return Markup(f"<script type='text/plain'>{packed}</script>")
    inert = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(f"<script type='application/json'>{inert}</script>")


def _shape(chart: Chart) -> str:
    """Names need room; what is one value high as another need not be wide."""
    whole = any(isinstance(mark, Cells | Tree) for mark in chart.marks)
    return "broad" if whole or chart.is_broad or chart.beside else ""
