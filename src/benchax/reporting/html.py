"""Renders documents as HTML: a fragment for a notebook, or a page that needs nothing but itself.

Styles stand in each element: a notebook may drop style sheets, and has styles of its own for tables, which is why even
what a browser does anyway is said in full. Colours are legible on light and dark backgrounds alike. All text goes
through `_element`, and attributes through `_begin`: nothing else here escapes, and nothing else makes a tag, but
matplotlib, which draws the charts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain

from benchax.errors import MissingPackage
from benchax.model import Remark
from benchax.reporting import figures
from benchax.reporting.chart import Chart
from benchax.reporting.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    List,
    Paragraph,
    Remarks,
    Section,
    Sparkline,
    Table,
    TableCell,
    TableColumn,
    TextRow,
)
from benchax.reporting.styles import MARKS, Style

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
_PAGE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
)
BAR_WIDTH, BAR_HEIGHT = 8, 32


class Markup(str):
    """HTML already: not escaped again."""

    __slots__ = ()


def fragment(document: Document) -> str:
    """Inherits the font and the colours of the page that it stands in."""
    blocks = chain.from_iterable(map(_render_block, document.blocks))
    return _element("div", *blocks, style="overflow-wrap:anywhere;", css_class="benchax")


def page(title: str, documents: Iterable[Document]) -> str:
    """One file, in the colours that the reader's system has."""
    head = (_begin("meta", charset="utf-8"), _element("title", title), _element("style", Markup(_PAGE)))
    body = _begin("hr").join(fragment(document) for document in documents)
    content = _element("html", _element("head", *head), _element("body", Markup(body)), lang="en")
    return f"<!doctype html>\n{content}\n"


def _element(tag: str, *content: str, css_class: str = "", **attributes: str) -> Markup:
    """Content that is no Markup is text."""
    inner = "".join(part if isinstance(part, Markup) else escape(part, quote=False) for part in content)
    return Markup(f"{_begin(tag, css_class=css_class, **attributes)}{inner}</{tag}>")


def _begin(tag: str, css_class: str = "", **attributes: str) -> Markup:
    """The beginning of an element, or one that has no end. `aria_level` is written aria-level; empty ones are not."""
    named = {"class": css_class} | {name.replace("_", "-"): value for name, value in attributes.items()}
    listed = "".join(f" {name}='{escape(value)}'" for name, value in named.items() if value)
    return Markup(f"<{tag}{listed}>")


def _render_block(block: Block) -> Iterator[Markup]:
    match block:
        case Heading():
            yield from _render_heading(block)
        case Paragraph():
            yield _element("div", block.text, style=_APART + _LINES + _STYLES[block.style])
        case List():
            items = [_element("div", item.text, style=_LINES + _STYLES[item.style]) for item in block.items]
            yield _element("div", *items, style=_APART)
        case Table():
            yield from _render_table(block)
        case Facts():
            rows = chain.from_iterable(_render_section(section, block.kind) for section in block.sections)
            yield _element("table", *rows, style=_TABLE)
        case Remarks():
            yield from map(_render_remark, block.remarks)
        case Code():
            yield _render_code(block)
        case Sparkline():
            yield _element("div", _draw_sparkline(block), " ", block.caption, style=_APART)
        case Chart():
            yield _draw_chart(block)


def _render_heading(heading: Heading) -> Iterator[Markup]:
    """No <h2>: notebooks would list it among the headings of their own text."""
    aside = [_element("span", f" {heading.aside}", style="font-weight:normal;opacity:.65;")] if heading.aside else []
    style = f"{_APART if heading.level > 1 else ''}font-weight:bold;{_STYLES[heading.style]}"
    level = str(heading.level + 1)
    yield _element("div", heading.text, *aside, style=style, role="heading", aria_level=level)
    for text in heading.below:
        yield _element("div", text, style=f"opacity:.65;font-size:90%;{_LINES}")


def _render_remark(remark: Remark) -> Markup:
    mark, style = MARKS[remark.severity]
    colored = _element("span", mark, style=_STYLES[style])
    return _element("div", colored, f" {remark.message}", style="padding-left:24px;text-indent:-12px;")


def _render_code(code: Code) -> Markup:
    text = _element("pre", code.text, style="overflow-x:auto;margin:0;")
    return _element("details", _element("summary", code.title), text) if code.title else text


# ---- facts ------------------------------------------------------------------------------------------------------


def _render_section(section: Section, kind: str) -> Iterator[Markup]:
    if section.title:
        cell = _element("td", _element("b", section.title), style=f"{_CELL}padding-top:8px;", colspan="3")
        yield _element("tr", cell, style=_ROW)
    for row in section.rows:
        yield _render_row(row, kind)


def _render_row(row: TextRow, kind: str) -> Markup:
    color = _STYLES[row.style]
    value = _NUMBER if kind == "numbers" else _LINES
    cells = (
        _element("td", row.label, style=f"{_CELL}padding-left:12px;white-space:nowrap;{color}"),
        _element("td", row.value, style=f"{_CELL}{value}{color}"),
        _element("td", row.detail, style=f"{_CELL}{_LINES}{color or 'opacity:.75;'}"),
    )
    return _element("tr", *cells, style=_ROW)


# ---- tables -----------------------------------------------------------------------------------------------------


def _render_table(table: Table) -> Iterator[Markup]:
    """A table that is too wide is scrolled, not the page."""
    columns = zip(table.columns, *table.lines, strict=True)
    styles = [_CELL + _style_column(column, texts) for column, *texts in columns]
    head = [_element("tr", *_render_names(table, styles), style=_ROW)] if any(table.names) else []
    rows = [_element("tr", *_render_cells(row, styles), style=_ROW) for row in table.rows]
    yield _element("div", _element("table", *head, *rows, style=_TABLE), style=f"{_APART}overflow-x:auto;")
    if table.note:
        yield _element("div", table.note, style=_STYLES["faint"])


def _style_column(column: TableColumn, texts: Sequence[str]) -> str:
    """Folded as in a terminal: without a least width, a long name beside it would leave a column one letter."""
    if column.kind == "numbers":
        return _NUMBER
    if column.least_width is None:
        return "white-space:nowrap;"
    return f"min-width:{min(column.least_width, max(map(len, texts), default=0))}ch;"


def _render_names(table: Table, styles: Sequence[str]) -> Iterator[Markup]:
    for name, style in zip(table.names, styles, strict=True):
        yield _element("th", name, style=f"{style}font-weight:bold;", scope="col")


def _render_cells(row: Sequence[TableCell], styles: Sequence[str]) -> Iterator[Markup]:
    for cell, style in zip(row, styles, strict=True):
        yield _element("td", cell.text, style=style + _STYLES[cell.style], title=cell.hint)


# ---- sparklines and charts --------------------------------------------------------------------------------------


def _draw_sparkline(line: Sparkline) -> Markup:
    """Bars in the colour of the text, a line before those of another machine; the caption says what they span."""
    width = BAR_WIDTH * len(line.values)
    shapes: list[Markup] = []
    for i, height in enumerate(line.heights):
        left = BAR_WIDTH * i
        if i in line.breaks and i > 0:
            shapes.append(_draw_box(left - 1.0, 1.0, BAR_HEIGHT, "0.5"))
        if height is not None:
            shapes.append(_draw_box(left + 1.0, BAR_WIDTH - 2.0, 2 + height * (BAR_HEIGHT - 2), "0.8"))
    named = {"role": "img", "aria_label": line.caption, "width": str(width), "height": str(BAR_HEIGHT)}
    return _element("svg", *shapes, viewBox=f"0 0 {width} {BAR_HEIGHT}", fill="currentColor", **named)


def _draw_chart(chart: Chart) -> Markup:
    """A page without it is still a page: where matplotlib is missing, a line says what would be there."""
    try:
        drawn = Markup(figures.to_svg(chart))
    except MissingPackage as error:
        return _element("div", f"chart: {chart.caption}\n{error}", style=_APART + _LINES + _STYLES["faint"])
    return _element("div", drawn, style=_APART, role="img", aria_label=chart.caption)


def _draw_box(left: float, width: float, height: float, opacity: str) -> Markup:
    place = {"x": f"{left:g}", "y": f"{BAR_HEIGHT - height:.2f}", "width": f"{width:g}", "height": f"{height:.2f}"}
    return _element("rect", **place, opacity=opacity)
