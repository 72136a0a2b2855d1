"""Makes untrusted texts safe to show or keep: names, messages, output of programs.

They can have any length. They can hold commands for a terminal (escape sequences, a carriage return), or marks of
right-to-left text, which reverse the order of a line. Then a line would look different from its content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

LONGEST_MESSAGE = 2_000
LONGEST_TRACEBACK = 20_000
"""The number of characters that a row keeps of an error."""
MOST_LISTED = 5
"""Texts that a list names if its place does not say how many."""

# C0 and C1 controls except tab and line break, direction marks and overrides, and line and paragraph separators.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

_ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")

# Everything outside of Char in XML 1.0, 2.2.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def show_controls(text: str) -> str:
    r"""`text`, in which what a terminal would obey is spelt out: \x1b, \u202e. Tabs and line breaks stay."""
    return text if text.isprintable() else _CONTROLS.sub(_spell, text)


def show_line(text: str) -> str:
    r"""`show_controls`, and on one line: a line break is \n."""
    return show_controls(text).replace("\n", "\\n").replace("\t", "\\t")


def _spell(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def drop_addresses(text: str) -> str:
    """`text` without addresses in memory, which differ from process to process: <function f at 0x7f…>."""
    return _ADDRESS.sub("", text)


def spell_for_xml(text: str) -> str:
    r"""`text`, in which what XML cannot hold is spelt out, as in `show_controls`: \x1b, \ufffe."""
    return _NOT_XML.sub(_spell, text)


def cap(text: str, most: int = LONGEST_MESSAGE) -> str:
    """`text`, or its beginning and its end with the length told between them."""
    if len(text) <= most:
        return text
    note = f" … [{len(text):,} characters in all] … "
    end = most // 4
    return text[: most - end] + note + text[-end:]


def truncate(text: str, most: int) -> str:
    """`text`, or its beginning in `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def list_some(texts: Sequence[str], most: int = MOST_LISTED, what: str = "") -> list[str]:
    """The first ones, and at the end how many more there are: and 3 more functions.

    Args:
        what: the name of these things, in the plural.
    """
    left = len(texts) - most
    return [*texts[:most], f"and {left} more {what}".rstrip()] if left > 0 else list(texts)


def quote(value: object) -> str:
    """Returns `repr` of the value, cut to one line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text):,} characters)"


def can_name_a_file(text: str) -> bool:
    r"""Can the system be asked for it? Not with \0 in it, nor with what no encoding has (half of a surrogate pair)."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
