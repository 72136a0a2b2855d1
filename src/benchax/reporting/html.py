"""Renders documents as HTML fragments for notebooks; `pages` makes whole pages.

Each element has its own styles, because a notebook can drop style sheets and has its own styles for tables. For the
same reason, even a browser's defaults are written out. Colours are legible on light and dark backgrounds alike. All
text goes through `markup.element`. Only it and matplotlib, which draws the charts, make tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from benchax.errors import MissingPackage
from benchax.model import Remark
from benchax.reporting import figures
from benchax.reporting.chart import MARKS, Chart, Style
from benchax.reporting.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    List,
    Outline,
    Paragraph,
    Remarks,
    Section,
    Sparkline,
    Table,
    TableCell,
    TableColumn,
    TextRow,
    tabulate_outline,
)
from benchax.reporting.markup import Markup, element

# Contrast of about 4 on white and on the dark grey of notebooks (#1e1e1e) alike.
_STYLES: dict[Style, str] = {
    "": "",
    "good": "color:#2f9140;",
    "bad": "color:#e03e3e;",
    "warning": "color:#b77400;",
    "info": "color:#10858f;",
    "faint": "opacity:.75;",
    "title": "font-weight:bold;",
}
_APART = "margin:8px 0 0 0;"
_LINES = "white-space:pre-line;"
_TABLE = "border-collapse:collapse;table-layout:auto;margin:0;"
_ROW = "background:none;"
_CELL = "padding:1px 12px 1px 0;text-align:left;vertical-align:top;border:0;"
_NUMBER = "text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums;"
BAR_WIDTH, BAR_HEIGHT = 8, 32


def fragment(document: Document) -> str:
    """Inherits the font and the colours of the page around it."""
    blocks = chain.from_iterable(map(_render_block, document.blocks))
    return element("div", *blocks, style="overflow-wrap:anywhere;", css_class="benchax")


def _render_block(block: Block) -> Iterator[Markup]:
    match block:
        case Heading():
            yield from _render_heading(block)
        case Paragraph():
            yield element("div", block.text, style=_APART + _LINES + _STYLES[block.style])
        case List():
            items = [element("div", item.text, style=_LINES + _STYLES[item.style]) for item in block.items]
            yield element("div", *items, style=_APART)
        case Table():
            yield from _render_table(block)
        case Facts():
            rows = chain.from_iterable(_render_section(section, block.kind) for section in block.sections)
            yield element("table", *rows, style=_TABLE)
        case Remarks():
            yield from map(_render_remark, block.remarks)
        case Code():
            yield _render_code(block)
        case Sparkline():
            yield element("div", draw_sparkline(block), " ", block.caption, style=_APART)
        case Chart():
            yield _draw_chart(block)
        case Outline():
            yield element("div", block.caption, style=_APART + _STYLES["title"])
            yield from _render_table(tabulate_outline(block))


def _render_heading(heading: Heading) -> Iterator[Markup]:
    """No <h2>: notebooks would list it among the headings of their own text."""
    aside = [element("span", f" {heading.aside}", style="font-weight:normal;opacity:.65;")] if heading.aside else []
    style = f"{_APART if heading.level > 1 else ''}font-weight:bold;{_STYLES[heading.style]}"
    level = str(heading.level + 1)
    yield element("div", heading.text, *aside, style=style, role="heading", aria_level=level)
    if heading.answers:
        yield element("table", *(_render_row(row, "numbers") for row in heading.answers), style=_TABLE)
    for text in heading.below:
        yield element("div", text, style=f"opacity:.65;font-size:90%;{_LINES}")


def _render_remark(remark: Remark) -> Markup:
    mark, style = MARKS[remark.severity]
    colored = element("span", mark, style=_STYLES[style])
    return element("div", colored, f" {remark.message}", style="padding-left:24px;text-indent:-12px;")


def _render_code(code: Code) -> Markup:
    text = element("pre", code.text, style="overflow-x:auto;margin:0;")
    return element("details", element("summary", code.title), text) if code.title else text


# ---- facts ------------------------------------------------------------------------------------------------------


def _render_section(section: Section, kind: str) -> Iterator[Markup]:
    if section.title:
        cell = element("td", element("b", section.title), style=f"{_CELL}padding-top:8px;", colspan="3")
        yield element("tr", cell, style=_ROW)
    for row in section.rows:
        yield _render_row(row, kind)


def _render_row(row: TextRow, kind: str) -> Markup:
    color = _STYLES[row.style]
    value = _NUMBER if kind == "numbers" else _LINES
    cells = (
        element("td", row.label, style=f"{_CELL}padding-left:12px;white-space:nowrap;{color}"),
        element("td", row.value, style=f"{_CELL}{value}{color}"),
        element("td", row.detail, style=f"{_CELL}{_LINES}{color or 'opacity:.75;'}"),
    )
    return element("tr", *cells, style=_ROW)


# ---- tables -----------------------------------------------------------------------------------------------------


def _render_table(table: Table) -> Iterator[Markup]:
    """A table that is too wide is scrolled, not the page."""
    columns = zip(table.columns, *table.lines, strict=True)
    styles = [_CELL + _style_column(column, texts) for column, *texts in columns]
    head = [element("tr", *_render_names(table, styles), style=_ROW)] if any(table.names) else []
    rows = [element("tr", *_render_cells(row, styles), style=_ROW) for row in table.rows]
    yield element("div", element("table", *head, *rows, style=_TABLE), style=f"{_APART}overflow-x:auto;")
    if table.note:
        yield element("div", table.note, style=_STYLES["faint"])


def _style_column(column: TableColumn, texts: Sequence[str]) -> str:
    """Folds a column as a terminal does. Without a least width, a long name in the next column would leave one letter
    of room."""
    if column.kind == "numbers":
        return _NUMBER
    if column.least_width is None:
        return "white-space:nowrap;"
    return f"min-width:{min(column.least_width, max(map(len, texts), default=0))}ch;"


def _render_names(table: Table, styles: Sequence[str]) -> Iterator[Markup]:
    for name, style in zip(table.names, styles, strict=True):
        yield element("th", name, style=f"{style}font-weight:bold;", scope="col")


def _render_cells(row: Sequence[TableCell], styles: Sequence[str]) -> Iterator[Markup]:
    for cell, style in zip(row, styles, strict=True):
        yield element("td", cell.text, style=style + _STYLES[cell.style], title=cell.hint)


# ---- sparklines and charts --------------------------------------------------------------------------------------


def draw_sparkline(line: Sparkline) -> Markup:
    """Draws bars in the colour of the text, a line before those of another machine; the caption says what they span."""
    width = BAR_WIDTH * len(line.values)
    shapes: list[Markup] = []
    for i, height in enumerate(line.heights):
        left = BAR_WIDTH * i
        if i in line.breaks and i > 0:
            shapes.append(_draw_box(left - 1.0, 1.0, BAR_HEIGHT, "0.5"))
        if height is not None:
            shapes.append(_draw_box(left + 1.0, BAR_WIDTH - 2.0, 2 + height * (BAR_HEIGHT - 2), "0.8"))
    named = {"role": "img", "aria_label": line.caption, "width": str(width), "height": str(BAR_HEIGHT)}
    return element("svg", *shapes, viewBox=f"0 0 {width} {BAR_HEIGHT}", fill="currentColor", **named)


def _draw_chart(chart: Chart) -> Markup:
    """A page without it is still a page: where matplotlib is missing, a line says what would be there."""
    try:
        drawn = Markup(figures.to_svg(chart))
    except MissingPackage as error:
        return element("div", f"chart: {chart.caption}\n{error}", style=_APART + _LINES + _STYLES["faint"])
    return element("div", drawn, style=_APART, role="img", aria_label=chart.caption)


def _draw_box(left: float, width: float, height: float, opacity: str) -> Markup:
    place = {"x": f"{left:g}", "y": f"{BAR_HEIGHT - height:.2f}", "width": f"{width:g}", "height": f"{height:.2f}"}
    return element("rect", **place, opacity=opacity)
