"""Renders documents as GitHub's Markdown: for a pull request, a job summary, a page of results.

Colours have no words here and are left out. All text goes through `escape`, or is code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from benchax.reporting.document import (
    MARKS,
    Block,
    Chart,
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
    TextRow,
    tabulate_outline,
)

# A colon inside a word can create emoji and links, and a leading dash a list or a rule.
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&$@]|:(?=\S)|^[-+](?=[-+\s]|$))")
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
_FENCE = re.compile(r"`{3,}")


def render(document: Document) -> str:
    blocks = chain.from_iterable(map(_render_block, document.blocks))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _render_block(block: Block) -> Iterator[str]:
    """Parts with a blank line between them."""
    match block:
        case Heading():
            yield " ".join(part for part in ("#" * block.level, escape(block.text), escape(block.aside)) if part)
            yield from _render_section(Section("", block.answers))
            yield _join_lines(block.below)
        case Paragraph():
            yield _join_lines(block.text.split("\n"))
        case List():
            yield "\n".join(f"- {escape(item.text)}" for item in block.items)
        case Table():
            yield _render_table(block)
            yield escape(block.note)
        case Facts():
            yield from chain.from_iterable(map(_render_section, block.sections))
        case Remarks():
            yield "\n".join(f"- {MARKS[remark.severity][0]} {escape(remark.message)}" for remark in block.remarks)
        case Code():
            yield _bold(block.title)
            yield _fence(block)
        case Sparkline():
            yield f"{block.bars} {escape(block.caption)}"
        case Chart():  # GitHub shows no SVG that stands in a text
            yield f"chart: {escape(block.caption)}"
        case Outline():
            yield _bold(block.caption)
            yield from _render_block(tabulate_outline(block))


def _join_lines(lines: Iterable[str]) -> str:
    return "  \n".join(text for text in map(escape, lines) if text)


def _render_section(section: Section) -> Iterator[str]:
    yield _bold(section.title)
    yield "\n".join(f"- {_render_row(row)}" for row in section.rows)


def _render_row(row: TextRow) -> str:
    label = f"{_bold(row.label)}:" if row.label.strip() else ""
    values = ", ".join(filter(None, map(escape, (row.value, row.detail))))
    return " ".join(filter(None, (label, values)))


def _render_table(table: Table) -> str:
    head = [escape(name) for name in table.names]
    rule = ["---:" if column.kind == "numbers" else "---" for column in table.columns]
    writers = [code if column.kind == "names" else escape for column in table.columns]
    rows = [[write(text) for write, text in zip(writers, line, strict=True)] for line in table.lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))


def _fence(block: Code) -> str:
    """With a fence that is longer than any in the text."""
    longest = max((len(run) for run in _FENCE.findall(block.text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{block.language}\n{block.text}\n{fence}"


def _bold(text: str) -> str:
    escaped = escape(text)
    return f"**{escaped}**" if escaped else ""


def code(content: str) -> str:
    """Formats text as code if possible, because it also reads well in the source."""
    is_plain = content and content.isprintable() and content.strip() == content and not set("`|") & set(content)
    return f"`{content}`" if is_plain else escape(content)


def escape(content: str) -> str:
    """As text of one line: nothing in it formats, links, mentions anyone or ends the cell."""
    one_line = " ".join(content.split())
    visible = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in one_line)
    # Don't use a backslash: GitHub splits a table at \| before it parses the cells, and links @names.
    entities = _SPECIAL.sub(lambda m: f"&#{ord(m[1])};", visible)
    return _NUMBERED.sub(lambda m: f"{m[1]}&#{ord(m[2])};", entities)
