"""Docstrings of benchax as Markdown: paragraphs, indented blocks, and sections such as Args, Returns and Raises."""

from __future__ import annotations

import re
import textwrap

SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Example)\b([^:\n]*):$")


def to_markdown(docstring: str) -> str:
    """A cleaned docstring (`inspect.getdoc`) as Markdown. Single backticks are code, as they are in Markdown."""
    parts: list[str] = []
    for block in _blocks(docstring):
        first, _, rest = block.partition("\n")
        if found := SECTION.match(first):
            parts.append(_section(found[1], f"{found[1]}{found[2]}", textwrap.dedent(rest)))
        elif block.startswith("    "):
            parts.append(_code(textwrap.dedent(block)))
        else:
            parts.append(escape(block))
    return "\n\n".join(parts)


def _blocks(docstring: str) -> list[str]:
    """Paragraphs and indented blocks; a section has all that is indented below it, blank lines included."""
    blocks: list[str] = []
    for chunk in docstring.split("\n\n"):
        is_more = chunk.startswith(" ") and bool(blocks) and (SECTION.match(blocks[-1].partition("\n")[0]) is not None)
        if is_more or (chunk.startswith("    ") and bool(blocks) and blocks[-1].startswith("    ")):
            blocks[-1] += f"\n\n{chunk}"
        else:
            blocks.append(chunk)
    return blocks


def _section(kind: str, title: str, body: str) -> str:
    if kind == "Example":
        return _code(body)
    if kind in ("Returns", "Yields"):
        return f"**{title}**: {escape(' '.join(body.split()))}"
    items = re.split(r"\n(?=\S)", body.strip())
    return f"**{title}**\n\n" + "\n".join(_item(" ".join(item.split())) for item in items)


def _item(text: str) -> str:
    """ "name, other: what it is", as an item of a list."""
    names, colon, rest = text.partition(": ")
    if not colon:
        return f"- {escape(text)}"
    return f"- {', '.join(f'`{name.strip()}`' for name in names.split(','))}: {escape(rest)}"


def _code(text: str) -> str:
    """Between more backticks than there are in it."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text + "`")))
    return f"{fence}python\n{text.strip(chr(10))}\n{fence}"


def escape(text: str) -> str:
    """What is Markdown by chance, outside of code, is shown as it is."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_<\[\]|\\])", r"\\\1", p) for p in pieces)
