"""The contract of documents: every text of every block is in what each renderer makes of it, and none is markup."""

from __future__ import annotations

import html as entities
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

from rich.cells import cell_len

from benchax.reporting import html, markdown, terminal
from benchax.reporting.document import (
    Block,
    Chart,
    Code,
    Document,
    Facts,
    Heading,
    List,
    Paragraph,
    Remarks,
    Sparkline,
    Table,
    TextRow,
)
from benchax.reporting.terminal import longest_word

NARROW, WIDE = (40, 80, 120), 20_000
TAGS = {
    "div", "section", "p", "ul", "li", "small", "span", "table", "thead", "tbody", "tr", "th", "td", "pre", "code",
    "details", "summary", "svg", "rect",
}  # fmt: skip
"""All that the renderer for notebooks makes."""
DRAWN = TAGS | {"g", "path", "text", "use", "defs", "clippath", "image"}
"""And what matplotlib does, of charts."""


VOID = ("br", "hr", "meta")
"""Elements that have no end."""


class Reader(HTMLParser):
    """Complains of what is left open, and of what is closed in another order."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(fragment)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def too_wide(text: str, width: int) -> list[str]:
    """Lines that are wider than the window and could have been broken: of more than one word, or indented for long."""
    return [line for line in text.splitlines() if cell_len(line) > width and longest_word([line]) + 10 <= width]


def check_rendered(document: Document) -> None:
    """Nothing is lost in a terminal of any width, on a page and in Markdown."""
    texts = list_texts(document)
    assert texts
    assert missing(texts, terminal.to_text(document, WIDE)) == []
    in_any_width = list_texts(replace(document, blocks=tuple(map(without_columns, document.blocks))))
    programs = {line for block in document.blocks if isinstance(block, Code) for line in block.text.splitlines()}
    for width in NARROW:  # texts that fold side by side are mixed there
        shown = terminal.to_text(document, width)
        assert Counter(_solid("".join(in_any_width))) - Counter(_solid(shown)) == {}, width
        assert [line for line in too_wide(shown, width) if line not in programs] == []
    page = Reader(html.fragment(document))
    assert missing(texts, "".join(page.texts)) == []
    assert page.tags <= (DRAWN if any(isinstance(block, Chart) for block in document.blocks) else TAGS)
    source = markdown.render(document)
    assert missing(texts, entities.unescape(source) + source) == []  # code has no entities


def list_texts(document: Document) -> list[str]:
    return [text for block in document.blocks for text in texts_of(block) if text.strip()]


def without_columns(block: Block) -> Block:
    """Without the columns that a narrow window cuts or leaves out."""
    if not isinstance(block, Table):
        return block
    return block.with_columns({i for i, c in enumerate(block.columns) if not (c.is_cut or c.is_optional)})


def missing(texts: list[str], rendered: str) -> list[str]:
    there = _solid(rendered)
    lines = [line for text in texts for line in text.split("\n")]
    return [line for line in lines if _solid(line) not in there]


def _solid(text: str) -> str:
    """Folding may put spaces and line breaks anywhere; a terminal and Markdown show no control characters."""
    return re.sub(r"[\s\x00-\x1f\u202e]|\\x\w\w|\\u\w{4}", "", text)


def texts_of(block: Block) -> Iterator[str]:
    match block:
        case Heading():
            yield from (block.text, block.aside, *block.below)
            yield from (text for row in block.answers for text in _texts_of_row(row))
        case Paragraph():
            yield block.text
        case List():
            yield from (item.text for item in block.items)
        case Table():
            yield from (*block.names, block.note)
            yield from (text for line in block.lines for text in line)
        case Facts():
            yield from (section.title for section in block.sections)
            yield from (text for section in block.sections for row in section.rows for text in _texts_of_row(row))
        case Remarks():
            yield from (remark.message for remark in block.remarks)
        case Code():
            yield from (block.title, block.text)
        case Sparkline():
            yield block.caption
        case Chart():  # a figure has the lines of its title, one below the other
            yield from block.caption.split(" · ")


def _texts_of_row(row: TextRow) -> tuple[str, ...]:
    return row.label, row.value, row.detail
