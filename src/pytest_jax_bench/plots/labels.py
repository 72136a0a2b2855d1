"""Text for pictures: any name of a test, a tag, a parameter or a commit as one short line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from benchax.model import Opaque

LONGEST = 44
LONGEST_TEST = 60
LONGEST_COMMIT = 18


def short(text: Any, longest: int = LONGEST) -> str:
    """Shortens a text to one line of at most `longest` characters, without the middle; unprintable characters become
    �."""
    text = str(text)
    if len(text) > 20 * longest:
        text = f"{text[: 10 * longest]}…{text[-10 * longest :]}"
    line = "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))
    if len(line) > longest:
        tail = longest // 3
        line = f"{line[: longest - tail - 1]}…{line[-tail:]}"
    return line or "(empty)"


def plain(text: str) -> str:
    """`text` for matplotlib, which reads dollars as formulas, and hides in a legend what begins with an underscore."""
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def distinct(texts: Sequence[Any], longest: int = LONGEST) -> list[str]:
    """A short line for each of `texts`, no two alike: those that differ only where they were cut are numbered."""
    lines: list[str] = []
    taken: set[str] = set()
    for text in texts:
        line, number = short(text, longest), 2
        while line in taken:
            line, number = f"{short(text, longest - 5)} ({number})", number + 1
        taken.add(line)
        lines.append(line)
    return lines


def as_text(value: Any) -> str:
    """A parameter; one that is no plain value, such as a function, by the text that it is stored as."""
    return value.text if isinstance(value, Opaque) else str(value)


def natural(value: Any) -> tuple[Any, ...]:
    """A key that sorts n2 before n10, and numbers before words."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, float(value), ())
    parts = re.split(r"([0-9]+)", as_text(value)[:1000])
    return (1, 0.0, tuple((0, int(p), "") if i % 2 else (1, 0, p.casefold()) for i, p in enumerate(parts)))


def names_of_tests(nodeids: Sequence[str]) -> list[str]:
    """Names of tests side by side: without the folders, and without the file if that is the same for all."""
    parts = [nodeid.partition("::") for nodeid in nodeids]
    one_file = len({file for file, _, _ in parts}) == 1
    return [name if one_file and name else f"{file.rsplit('/', 1)[-1]}{mark}{name}" for file, mark, name in parts]


def list_texts(texts: Sequence[str], most: int = 4) -> str:
    """a, b and c; beyond `most`: a, b, c, d and 7 more."""
    if len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most} more"
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else list(texts))
