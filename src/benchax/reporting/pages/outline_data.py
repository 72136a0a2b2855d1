"""Outlines as plain values for JSON, from which `assets/outlines.js` draws boxes.

An entry is a list without its empty end: [name, kind, values, detail, source, key + 1, reads, parts]. Texts
are written once: each stands in a list of all of them, and its place there in the entry.
"""

from __future__ import annotations

from typing import Any

from benchax.reporting.outline import Outline, OutlineEntry
from benchax.reporting.pages.chart_data import DIGITS, finite_number


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
