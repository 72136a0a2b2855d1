"""Breaks lines for a window between words only: a path, a name or a number with its unit stays in one piece.

A word that is wider than the window goes on beyond it: terminals break such a line themselves and copy it as one.
Names of files with a line (`train.py:12`) are links, where the terminal knows such (OSC 8) and the file is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

_UNIT = r"(?:[nµm]?s|min|h|[kKMGTP]?i?B|[kMGTP]?FLOP)\b|%"
# 1.5 ms, ± 2 % and 1.0 – 1.2 are one word each.
_WORD = re.compile(rf"(?:\S|(?<=\d) (?={_UNIT}|– )|(?<=[±≥≤<>~–]) (?=\d))+")
_LOCATION = re.compile(r"(?<![\w/.~-])([\w/.~+@=-]*[\w+-]\.\w+):(\d+)\b")
LEAST_WIDTH = 10
"""Text next to something gets at least this width, even in a narrow window."""


def longest_word(texts: Iterable[str]) -> int:
    """In columns of a terminal."""
    return max((cell_len(word) for text in texts for word in _WORD.findall(text)), default=0)


def break_lines(text: Text, width: int) -> Iterator[Text]:
    """`text` in lines of `width` columns, or of one word that is wider."""
    for line in text.split(allow_blank=True):
        line.expand_tabs(8)
        for part in line.divide(_breaks(line.plain, width)):
            part.rstrip()
            part.no_wrap, part.overflow = True, "ignore"
            yield part


_JOINT = re.compile(r"(?<=[/;,])|(?=\[)")
"""Where a path of files, scopes or a pytree is broken best."""


def break_word(line: Text, width: int) -> Iterator[Text]:
    """Splits a line of one word into pieces that fit the width, at joints of a path if it has some."""
    while line.cell_len > width:
        fits = next(i for i in range(len(line.plain), 0, -1) if i == 1 or cell_len(line.plain[:i]) <= width)
        joints = [found.start() for found in _JOINT.finditer(line.plain) if fits // 2 < found.start() <= fits]
        piece, line = line.divide([joints[-1] if joints else fits])
        piece.no_wrap, piece.overflow = True, "ignore"
        yield piece
    line.no_wrap, line.overflow = True, "ignore"
    yield line


def fold_text(text: str, width: int) -> str:
    return "\n".join(line.plain for line in break_lines(Text(text), width))


def _breaks(line: str, width: int) -> list[int]:
    """Where a new line begins."""
    found: list[int] = []
    begin = 0
    for word in _WORD.finditer(line):
        if word.start() > begin and cell_len(line[begin : word.end()]) > width and line[begin : word.start()].strip():
            found.append(begin := word.start())
    return found


def link_locations(text: Text) -> Text:
    """`text`, in which each file with a line leads to the file."""
    for found in _LOCATION.finditer(text.plain):
        file = Path(found[1]).expanduser()
        if file.is_file():
            text.stylize(f"link {file.absolute().as_uri()}", found.start(), found.end())
    return text


class Folded:
    """A text that is broken by the width of the console; what its lines begin with is not text of it."""

    def __init__(self, text: Text, first: Text | None = None, indent: str = "") -> None:
        """`first` precedes the first line and is as wide as `indent`, which precedes the other lines."""
        self.text, self.indent = text, indent
        self.first = Text(indent) if first is None else first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        width = max(options.max_width - cell_len(self.indent), LEAST_WIDTH)
        for i, line in enumerate(break_lines(link_locations(self.text), width)):
            yield Text.assemble(Text(self.indent) if i else self.first, line, no_wrap=True, overflow="ignore")
