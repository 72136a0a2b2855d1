"""Draws for notebooks: one table per measurement, inline styles only, every text escaped."""

from __future__ import annotations

from html import escape

from benchax.model import Measurement
from benchax.reporting.tables import Row, Section, Style, heading, sections

_COLORS: dict[Style, str] = {"bad": "#c62828", "warning": "#b26a00", "good": "#2e7d32", "faint": "#888"}
_REMARKS = {"error": ("✗", "bad"), "warning": ("!", "warning"), "info": ("·", "faint")}
_CELL = "padding:1px 12px 1px 0;text-align:{align};vertical-align:top;border:0;{more}"


def measurement(m: Measurement) -> str:
    """A fragment of HTML; inherits the page's font and works on light and dark backgrounds."""
    title, where = heading(m)
    head = f"<b>{escape(title)}</b><div style='opacity:.65;font-size:90%'>{escape(where)}<br>{escape(m.signature)}</div>"
    body = "".join(map(_section, sections(m)))
    return f"<div class='benchax'>{head}<table style='border-collapse:collapse'>{body}</table>{_remarks(m)}</div>"


def _section(section: Section) -> str:
    cell = _CELL.format(align="left", more="padding-top:8px;")
    title = f"<tr><td colspan=3 style='{cell}'><b>{escape(section.title)}</b></td></tr>"
    return title + "".join(map(_row, section.rows))


def _row(row: Row) -> str:
    color = f"color:{_COLORS[row.style]};" if row.style in _COLORS else ""
    label = _CELL.format(align="left", more=f"padding-left:12px;white-space:nowrap;{color}")
    value = _CELL.format(align="right", more=f"white-space:nowrap;font-variant-numeric:tabular-nums;{color}")
    detail = _CELL.format(align="left", more="opacity:.75;" if not color else color)
    detail_text = escape(row.detail).replace("\n", "<br>")
    return (
        f"<tr style='background:none'><td style='{label}'>{escape(row.label)}</td>"
        f"<td style='{value}'>{escape(row.value)}</td><td style='{detail}'>{detail_text}</td></tr>"
    )


def _remarks(m: Measurement) -> str:
    if not m.remarks:
        return ""
    items = "".join(
        f"<div style='padding-left:12px'><span style='color:{_COLORS[_REMARKS[r.severity][1]]}'>{_REMARKS[r.severity][0]}</span> "
        f"{escape(r.message)}</div>"
        for r in m.remarks
    )
    return f"<div style='padding-top:8px'><b>remarks</b>{items}</div>"
