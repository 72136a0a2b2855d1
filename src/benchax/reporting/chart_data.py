"""Charts as plain values for JSON, from which `assets/charts.js` draws them.

Numbers have at least six significant digits, and bars nine: a page is for reading, and the store has them all. Lists of
numbers are the bulk of a page and therefore written as integers with one exponent, or as a range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchax.reporting.chart import (
    Axis,
    AxisTick,
    Bars,
    Branch,
    Cells,
    Chart,
    Line,
    Mark,
    Note,
    Points,
    ReferenceLine,
    Shade,
    Tree,
)
from benchax.reporting.document import Outline, OutlineEntry

DIGITS, FINE_DIGITS = 6, 9
MOST_DECADES = 5
"""Lists that span more are written number by number."""


def encode_chart(chart: Chart) -> dict[str, Any]:
    """Omits empty values."""
    return _without_empty(
        {
            "title": chart.title,
            "x": _encode_axis(chart.x),
            "y": _encode_axis(chart.y),
            "marks": list(map(_encode_mark, chart.marks)),
            "beside": list(map(_encode_tick, chart.beside)),
            "legend": chart.has_legend or chart.has_series,
            "series": chart.has_series,
            "note": chart.note,
        }
    )


def _without_empty(named: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in named.items() if value not in ("", False, None, [], {})}


def _encode_axis(axis: Axis) -> dict[str, Any]:
    return _without_empty(
        {
            "title": axis.title,
            "quantity": axis.quantity,
            "log": axis.is_log,
            "ends": [finite_number(end) for end in axis.ends] if axis.ends else None,
            "names": axis.are_names,
            "ticks": list(map(_encode_tick, axis.ticks)),
        }
    )


def _encode_tick(tick: AxisTick) -> list[Any]:
    return [finite_number(tick.at), tick.text, tick.style]


def _encode_mark(mark: Mark) -> dict[str, Any]:
    match mark:
        case Points():
            found = _encode_points(mark)
        case Bars():
            lists = {name: encode_numbers(getattr(mark, name), FINE_DIGITS) for name in ("places", "lows", "highs")}
            thickness = None if mark.thickness == Bars.thickness else mark.thickness
            found = {"kind": "bars", **lists, **_encode_words(mark), "thickness": thickness}
        case Line():
            ends = {"x": encode_numbers(mark.x), "y": encode_numbers(mark.y)}
            found = {"kind": "line", **ends, "label": mark.label, "style": mark.style}
        case ReferenceLine():
            place = {"axis": mark.axis, "at": finite_number(mark.at), "as": mark.kind}
            found = {"kind": "reference", **place, "label": mark.label, "style": mark.style}
        case Shade():
            found = {
                "kind": "shade",
                "axis": mark.axis,
                "low": finite_number(mark.low),
                "high": finite_number(mark.high),
            }
        case Note():
            found = {
                "kind": "note",
                "x": finite_number(mark.x),
                "y": finite_number(mark.y),
                "text": mark.text,
                "style": mark.style,
            }
        case Cells():
            values = [encode_numbers(row) for row in mark.values]
            found = {"kind": "cells", "values": values, "words": mark.words, "styles": mark.styles}
        case Tree():
            found = {"kind": "tree", "roots": list(map(_encode_branch, mark.roots)), "quantity": mark.quantity}
    return _without_empty(found)


def _encode_points(points: Points) -> dict[str, Any]:
    known = [interval for interval in points.intervals if interval is not None]
    lows = [None if interval is None else interval[0] for interval in points.intervals]
    highs = [None if interval is None else interval[1] for interval in points.intervals]
    ends = {"lows": encode_numbers(lows), "highs": encode_numbers(highs)} if known else {}
    look = {"symbol": points.symbol, "hollow": points.is_hollow}
    lists = {"places": encode_numbers(points.places), "values": encode_numbers(points.values)}
    return {"kind": "points", **lists, **ends, **_encode_words(points), **look}


def _encode_words(mark: Points | Bars) -> dict[str, Any]:
    """Texts that repeat (the operations of a profile) are written once."""
    names = list(dict.fromkeys(mark.texts))
    places = {name: place for place, name in enumerate(names)}
    texts: Any = mark.texts
    if len(names) < len(mark.texts):
        texts = {"names": names, "at": [places[text] for text in mark.texts]}
    return {"along": mark.along, "label": mark.label, "style": mark.style, "texts": texts if names else None}


def _encode_branch(branch: Branch) -> dict[str, Any]:
    parts = list(map(_encode_branch, branch.parts))
    named = {"name": branch.name, "detail": branch.detail, "parts": parts}
    return _without_empty(named) | {"value": round_number(branch.value, FINE_DIGITS)}


# Encodes outlines as plain values for JSON, from which `assets/outlines.js` draws boxes.
#
# An entry is a list without its empty end: [name, kind, values, detail, source, key + 1, reads, parts]. A list holds
# each text once, and entries hold the text's position in that list.


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


# ---- numbers ----------------------------------------------------------------------------------------------------


def encode_numbers(values: Iterable[float | None], digits: int = DIGITS) -> Any:
    """A list, in which None stays null; or {"from": 3, "step": 0.5, "n": 3} of 3, 3.5, 4; or {"e": -9, "v": [12]} of
    12e-9."""
    listed = [None if v is None or not math.isfinite(v) else v for v in values]
    known = [v for v in listed if v is not None]
    if len(listed) > 2 and len(known) == len(listed) and _is_range(known):
        return {"from": known[0], "step": (known[-1] - known[0]) / (len(known) - 1), "n": len(known)}
    sizes = [abs(v) for v in known if v]
    is_whole = all(v < 10**digits and float(v).is_integer() for v in sizes)
    if is_whole or len(sizes) < 2 or max(sizes) > min(sizes) * 10**MOST_DECADES:
        return [round_number(v, digits) for v in listed]
    # The least one keeps all its digits; those of bars are counted from the greatest.
    exponent = math.floor(math.log10(min(sizes) if digits == DIGITS else max(sizes))) - digits + 1
    # A power of ten below one is not exact, its inverse is.
    factor, divisor = (10**-exponent, 1) if exponent < 0 else (1, 10**exponent)
    return {"e": exponent, "v": [None if v is None else round(v * factor / divisor) for v in listed]}


def _is_range(values: Sequence[float]) -> bool:
    first, step = values[0], (values[-1] - values[0]) / (len(values) - 1)
    # As exact as numbers of so many digits are.
    room = 10**-FINE_DIGITS * max(abs(first), abs(values[-1]))
    return all(abs(v - first - i * step) <= room for i, v in enumerate(values))


def round_number(value: float | None, digits: int) -> float | int | None:
    if value is None:
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def finite_number(value: float | None, digits: int = FINE_DIGITS) -> float | int | None:
    """Returns None for a value that JSON cannot express."""
    return None if value is None or not math.isfinite(value) else round_number(value, digits)
