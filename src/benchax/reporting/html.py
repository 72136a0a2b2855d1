"""Renders documents as HTML, one walk over the blocks for pages and for notebooks; and makes whole pages.

On a page elements have classes, which `pages/assets/page.css` gives their looks. In a notebook each element has its own
styles, because a notebook can drop style sheets and has its own styles for tables. For the same reason, even a
browser's defaults are written out. Colours are legible on light and dark backgrounds alike.

All text goes through `element`. Only it and matplotlib, which draws the charts of notebooks, make tags.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from html import escape
from importlib import resources
from itertools import chain, groupby
from pathlib import Path
from typing import Any, cast

from benchax.errors import MissingPackage
from benchax.model import Remark
from benchax.reporting import figures
from benchax.reporting.document import (
    MARKS,
    AxisTick,
    Block,
    Cells,
    Chart,
    Code,
    Document,
    Facts,
    Heading,
    Line,
    List,
    Mark,
    Outline,
    OutlineEntry,
    Paragraph,
    Points,
    Remarks,
    Section,
    Sparkline,
    Table,
    TableCell,
    TextRow,
    Tree,
    tabulate_outline,
)
from benchax.reporting.tables import one_line
from benchax.whole_files import refuse_unwritable, write_whole

_CELL = "padding:1px 12px 1px 0;text-align:left;vertical-align:top;border:0;white-space:pre-line;min-width:3ch;"
_HEADING = "font-weight:bold;white-space:pre-line;"
# Colours have a contrast of about 4 on white and on the dark grey of notebooks (#1e1e1e) alike.
_INLINE = {
    "h2": _HEADING,
    "h3": f"{_HEADING}margin:8px 0 0 0;",
    "li": "margin:0;padding-left:1.3em;text-indent:-1.3em;",
    "p": "margin:8px 0 0 0;white-space:pre-line;",
    "pre": "overflow-x:auto;margin:0;",
    "small": "font-weight:normal;font-size:inherit;opacity:.65;",
    "table": "border-collapse:collapse;table-layout:auto;margin:0;",
    "td": _CELL,
    "thcol": f"{_CELL}font-weight:bold;",
    "throw": f"{_CELL}padding-left:12px;white-space:nowrap;font-weight:normal;min-width:13ch;",
    "tr": "background:none;",
    "ul": "margin:4px 0 0 0;padding:0;list-style:none;white-space:pre-line;",
    ".bad": "color:#e03e3e;",
    ".below": "margin:0;opacity:.65;font-size:90%;",
    ".c": "min-width:12ch;",
    ".d": "opacity:.75;",
    ".faint": "opacity:.75;",
    ".good": "color:#2f9140;",
    ".info": "color:#10858f;",
    ".mark": "display:inline-block;width:1.3em;text-indent:0;",
    ".n": "text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums;",
    ".remarks": "padding-left:12px;",
    ".title": "font-weight:bold;",
    ".v": "min-width:11ch;",
    ".warning": "color:#b77400;",
    ".wide": "margin:4px 0 0 0;overflow-x:auto;",
}
"""The styles of elements in a notebook, by tag and by class."""
SEVERITIES = {"error": "error: ", "warning": "warning: ", "info": ""}
"""The meaning of a mark, for readers who do not see it."""
KINDS = {"numbers": "n", "names": "c", "words": ""}
"""Classes of the cells of a column."""


class Markup(str):
    """HTML already: not escaped again."""

    __slots__ = ()


def element(tag: str, *content: str, css_class: str = "", **attributes: str) -> Markup:
    """Content that is no Markup is text."""
    inner = "".join(part if isinstance(part, Markup) else escape(part, quote=False) for part in content)
    return Markup(f"{begin(tag, css_class=css_class, **attributes)}{inner}</{tag}>")


def begin(tag: str, css_class: str = "", **attributes: str) -> Markup:
    """The beginning of an element, or one that has no end. `aria_level` is written aria-level; empty ones are not."""
    named = {"class": css_class} | {name.replace("_", "-"): value for name, value in attributes.items()}
    listed = "".join(f" {name}='{escape(value)}'" for name, value in named.items() if value)
    return Markup(f"<{tag}{listed}>")


def fragment(document: Document) -> str:
    """For a notebook. Inherits the font and the colours of the page around it."""
    blocks = BlockWriter(is_page=False, level=2).render(document.blocks)
    return element("div", blocks, style="overflow-wrap:break-word;", css_class="benchax")


@dataclass(frozen=True)
class BlockWriter:
    """Writes the blocks of a document, or of a part of one."""

    is_page: bool = True
    level: int = 1
    """The level of the heading above the blocks; a heading of level 1 takes it."""
    targets: Mapping[str, str] = field(default_factory=dict[str, str])
    """The places of parts by their titles, to which cells with such a text lead."""

    def render(self, blocks: Sequence[Block]) -> Markup:
        """Consecutive charts are side by side if there is room."""
        found: list[Markup] = []
        for is_chart, group in groupby(blocks, lambda block: isinstance(block, Chart)):
            listed = chain.from_iterable(map(self._render_block, group))
            found += [self._tag("div", *listed, css_class="charts")] if is_chart else listed
        return Markup("".join(found))

    def _tag(self, name: str, *content: str, css_class: str = "", **attributes: str) -> Markup:
        if self.is_page:
            return element(name, *content, css_class=css_class, **attributes)
        keys = (name + attributes.get("scope", ""), *(f".{each}" for each in css_class.split()))
        styled = attributes | {"style": "".join(_INLINE.get(key, "") for key in keys)}
        if name in ("h2", "h3"):  # notebooks would list them among the headings of their own text
            return element("div", *content, **styled, role="heading", aria_level=name[1])
        return element(name, *content, **styled)

    def _render_block(self, block: Block) -> Iterator[Markup]:
        match block:
            case Heading():
                aside = [" ", self._tag("small", block.aside)] if block.aside else []
                depth = self.level if block.level == 1 else self.level + 1
                yield self._tag(f"h{depth}", block.text, *aside, css_class=block.style)
                yield from self.render_answers(block)
            case Paragraph():
                yield self._tag("p", block.text, css_class=block.style)
            case List():
                yield self._tag("ul", *(self._tag("li", item.text, css_class=item.style) for item in block.items))
            case Table():
                yield from self._render_table(block)
            case Facts():
                yield from (self._render_section(section, block.kind) for section in block.sections)
            case Remarks():
                yield self._tag("ul", *map(self._render_remark, block.remarks), css_class="remarks")
            case Code():
                yield self._render_code(block)
            case Sparkline():
                bars = self._tag("span", block.bars, css_class="bars", role="img", aria_label=block.caption)
                yield self._tag("p", bars, " ", block.caption)
            case Chart():
                yield self._render_chart(block) if self.is_page else self._draw_chart(block)
            case Outline():
                yield self._render_outline(block)

    def render_answers(self, heading: Heading) -> Iterator[Markup]:
        """The blocks that follow the title of a document."""
        if heading.answers:
            yield self._render_section(Section("", heading.answers), "numbers")
        yield from (self._tag("p", text, css_class="below") for text in heading.below)

    def _render_remark(self, remark: Remark) -> Markup:
        mark, style = MARKS[remark.severity]
        sign = self._tag("span", mark, css_class=f"mark {style}", aria_hidden="true" if self.is_page else "")
        # If styles are removed, nothing would hide it.
        spoken = [element("span", SEVERITIES[remark.severity], css_class="spoken")] if self.is_page else []
        return self._tag("li", sign, *spoken, remark.message)

    def _render_code(self, code: Code) -> Markup:
        # On a page, users can scroll its lines with the keyboard.
        reach = {"tabindex": "0", "role": "group", "aria_label": code.title or "code"} if self.is_page else {}
        text = self._tag("pre", self._tag("code", code.text), **reach)
        return self._tag("details", self._tag("summary", code.title), text) if code.title else text

    def _render_section(self, section: Section, kind: str) -> Markup:
        rows = [self._render_row(row, kind) for row in section.rows]
        title = [self._tag(f"h{self.level + 1}", section.title)] if section.title else []
        table = self._tag("div", self._tag("table", *rows, css_class="facts"), css_class="wide")
        return self._tag("section", *title, table)

    def _render_row(self, row: TextRow, kind: str) -> Markup:
        value = self._tag("td", row.value, css_class="n v" if kind == "numbers" else "")
        detail = self._tag("td", row.detail, css_class="d" if self.is_page or not row.style else "")
        # A row without a name continues the one above.
        name = self._tag("th", row.label, scope="row") if row.label else self._tag("td")
        return self._tag("tr", name, value, detail, css_class=row.style)

    def _render_table(self, table: Table) -> Iterator[Markup]:
        """A table that is too wide is scrolled, not the page."""
        kinds = [KINDS[column.kind] for column in table.columns]
        named = zip(table.names, kinds, strict=True)
        # An empty header cell would be announced as a header.
        names = [
            self._tag("th", name, scope="col", css_class=kind) if name else self._tag("td") for name, kind in named
        ]
        head = [self._tag("thead", self._tag("tr", *names))] if any(table.names) else []
        rows = [self._tag("tr", *map(self._render_cell, row, kinds)) for row in table.rows]
        yield self._tag("div", self._tag("table", *head, self._tag("tbody", *rows)), css_class="wide")
        if table.note:
            yield self._tag("p", table.note, css_class="faint")

    def _render_cell(self, cell: TableCell, kind: str) -> Markup:
        place = self.targets.get(cell.text) if cell.text else None
        target = cell.link or (f"#{place}" if place else "")
        text = self._tag("a", cell.text, href=target, css_class=cell.style) if target else cell.text
        return self._tag("td", text, css_class=f"{kind} {cell.style}".strip(), title=cell.hint)

    def _render_chart(self, chart: Chart) -> Markup:
        """Its data as JSON: scripts draw it when it comes into view, and make its table."""
        caption = element("figcaption", chart.caption)
        note = [element("p", chart.note, css_class="faint")] if chart.note else []
        # Names need space. A chart of one value need not be wide.
        is_broad = chart.is_broad or chart.beside or any(isinstance(mark, Cells | Tree) for mark in chart.marks)
        content = (caption, *note, element("div", css_class="plot"), _embed(encode(chart)))
        return element("figure", *content, css_class="broad" if is_broad else "")

    def _draw_chart(self, chart: Chart) -> Markup:
        """Where matplotlib is missing, a line says what would be there."""
        try:
            drawn = Markup(figures.to_svg(chart))
        except MissingPackage as error:
            return self._tag("p", f"chart: {chart.caption}\n{error}", css_class="faint")
        return self._tag("div", drawn, css_class="wide", role="img", aria_label=chart.caption)

    def _render_outline(self, outline: Outline) -> Markup:
        """The table is for notebooks, for browsers without scripts, and for paper. With scripts, boxes replace it."""
        table = tabulate_outline(outline)
        caption = self._tag("p", outline.caption, css_class="title")
        folded = self._tag("div", *self._render_table(replace(table, note="")), css_class="folded")
        note = self._tag("p", table.note, css_class="faint")
        if not self.is_page:
            return self._tag("section", caption, folded, note)
        boxes = element("div", css_class="boxes")
        return element("section", caption, boxes, folded, note, _embed(encode(outline)), css_class="outline")


def _embed(value: Any) -> Markup:
    """Packs JSON (zlib, then base64): numbers are most of a page, and take less than half of the room. No browser finds
    the end of the block in it, or a comment."""
    data = json.dumps(value, allow_nan=False, separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(data.encode())).decode()
    return Markup(f"<script type='text/plain'>{packed}</script>")


# ---- charts and outlines as plain values for JSON, from which the scripts in `pages/assets` draw them ----------------
#
# Numbers have at least six significant digits, and bars nine: a page is for reading, and the store has them all. Lists
# of numbers are the bulk of a page and therefore written as integers with one exponent.

DIGITS, FINE_DIGITS = 6, 9
MOST_DECADES = 5
"""Lists that span more are written number by number."""


def encode(part: Any) -> dict[str, Any]:
    """Encodes a chart, an outline, or a part of one: its fields by their names, without those that have their default.
    A mark also has its type."""
    found: dict[str, Any] = {"type": type(part).__name__} if isinstance(part, Mark) else {}
    digits = DIGITS if isinstance(part, Points | Line | Cells | OutlineEntry) else FINE_DIGITS
    for f in fields(part):
        value = getattr(part, f.name)
        # Without any interval, there are no ends.
        if value != f.default and not (f.name in ("lows", "highs") and {*value} == {None}):
            found[f.name] = _encode_field(value, digits)
    return found


def _encode_field(value: Any, digits: int) -> Any:
    match value:
        case AxisTick():
            return [finite_number(value.at), value.text, value.style]
        case (int() | float() | None, *_):
            return encode_numbers(value, digits)
        case tuple():
            return [_encode_field(item, digits) for item in cast("tuple[Any, ...]", value)]
        case float():
            return finite_number(value)
        case _:
            return encode(value) if is_dataclass(value) else value


# ---- numbers ----------------------------------------------------------------------------------------------------


def encode_numbers(values: Iterable[float | None], digits: int = DIGITS) -> Any:
    """A list, in which None stays null; or {"e": -9, "v": [12]} of 12e-9."""
    listed = [None if v is None or not math.isfinite(v) else v for v in values]
    sizes = [abs(v) for v in listed if v]
    if all(v < 1e15 and float(v).is_integer() for v in sizes):
        return [None if v is None else int(v) for v in listed]
    if len(sizes) < 2 or max(sizes) > min(sizes) * 10**MOST_DECADES:
        return [finite_number(v, digits) for v in listed]
    # The smallest one keeps all its digits. For bars, digits count from the largest.
    exponent = math.floor(math.log10(min(sizes) if digits == DIGITS else max(sizes))) - digits + 1
    # A power of ten below one is not exact, its inverse is.
    factor, divisor = (10**-exponent, 1) if exponent < 0 else (1, 10**exponent)
    return {"e": exponent, "v": [None if v is None else round(v * factor / divisor) for v in listed]}


def finite_number(value: float | None, digits: int = FINE_DIGITS) -> float | int | None:
    """Rounds a value. Returns None if JSON cannot express it."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


# ---- pages -----------------------------------------------------------------------------------------------------------
#
# A whole page from documents: one file, opened from disk without any network.
#
# The first document is open; each of the others is a part that opens. The page loads nothing. It runs only its own two
# scripts, which its security policy names by their hashes. Elements have no handlers and no styles. Data are in blocks
# of JSON, which no browser runs. A site shares styles and scripts between its pages: `Shared` holds their folder.


FRAME, STYLE = "page.html", "page.css"
LIBRARY = "echarts.js"
SCRIPTS = ("texts.js", "options.js", "trees.js", "charts.js", "outlines.js", "page.js")
"""Joined to one, in this order."""
ASSETS = ("page.css", "echarts.js", "page.js")
"""The files that a site writes next to its pages, each with `asset_text`."""
EMPTY = Markup("")
LONGEST_TITLE = 100
MOST_OPEN = 6
"""A page with more parts than this shows them closed at first."""


@dataclass(frozen=True)
class Shared:
    """The parts that pages of a site have in common, and the parts that a page has in addition to its documents."""

    folder: str
    """The folder of the assets, relative to the page: "../assets"."""
    above: Markup = EMPTY
    """Before the content: links to the other pages."""
    below: Markup = EMPTY
    """At the end of the content."""
    scripts: tuple[str, ...] = ()
    """Files, as seen from the page; they come after those of all pages."""


def render_page(title: str, documents: Sequence[Document], shared: Shared | None = None) -> str:
    """Args:
    title: of the window.
    documents: the first one is the page's own; see above.
    shared: None: everything is in the page.
    """
    blocks = documents[0].blocks if documents else ()
    has_title = any(isinstance(block, Heading) and block.level == 1 for block in blocks)
    parts = dict(enumerate(documents[1:], 1))
    targets = {part.title: f"part-{n}" for n, part in parts.items() if part.title}
    written = [_render_part(part, f"part-{n}", len(parts) <= MOST_OPEN) for n, part in parts.items()]
    head = "" if has_title else element("h1", title)
    body = Markup("".join([head, BlockWriter(targets=targets).render(blocks), *written]))
    names = [LIBRARY, "page.js"] if "<figure" in body else ["page.js"]
    if shared is None:  # scripts and styles by their hashes, and nothing else from anywhere
        script_src = " ".join(_hash(asset_text(name)) for name in names)
        style_src = _hash(asset_text(STYLE))
        styles = [element("style", Markup(asset_text(STYLE)))]
        scripts = [element("script", Markup(asset_text(name))) for name in names]
    else:
        script_src = style_src = "'self' file:"
        styles = [begin("link", rel="stylesheet", href=f"{shared.folder}/{STYLE}")]
        files = (*(f"{shared.folder}/{name}" for name in names), *shared.scripts)
        scripts = [element("script", src=file) for file in files]
    return _read(FRAME).format(
        script_src=script_src,
        style_src=style_src,
        title=element("title", title),
        styles="".join(styles),
        above=shared.above if shared else "",
        body=body,
        below=shared.below if shared else "",
        scripts="".join(scripts),
    )


def _render_part(part: Document, id: str, is_open: bool) -> Markup:
    """Its title is what opens it."""
    head = next((block for block in part.blocks if isinstance(block, Heading)), Heading("…"))
    rest = [block for block in part.blocks if block is not head]
    writer = BlockWriter(level=2)
    title = element("summary", element("h2", head.text, css_class=head.style))
    content = (title, *writer.render_answers(head), writer.render(rest))
    return element("details", *content, css_class="part", id=id, open="open" if is_open else "")


def asset_text(name: str) -> str:
    """The text of one of `ASSETS`, of the script of a site, or of the licence of the chart library."""
    return "\n".join(map(_read, SCRIPTS)) if name == "page.js" else _read(name)


@cache
def _read(name: str) -> str:
    return (resources.files("benchax.reporting") / "pages" / "assets" / name).read_text(encoding="utf-8")


@cache
def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def save_page(file: str | os.PathLike[str], documents: Sequence[Document]) -> None:
    """Writes one page. The window has the title of its first document.

    Raises:
        UsageError: the file cannot be written; an existing file is unchanged.
    """
    title = one_line(documents[0].title if documents else "") or "benchax"
    write_page(Path(file), render_page(title[:LONGEST_TITLE], documents))


def write_page(file: Path, text: str) -> None:
    """Writes a file whole or not at all.

    Raises:
        UsageError: with the reason of the operating system.
    """
    with refuse_unwritable(file):
        write_whole(file, text)
