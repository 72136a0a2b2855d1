"""Draws for notebooks: one table per measurement, inline styles only, every text escaped."""

from __future__ import annotations

from html import escape

from benchax.model import Measurement, Remark, Severity
from benchax.reporting.tables import Section, Style, TextRow, heading, sections

# Contrast of about 4 on white and on the dark grey of notebooks (#1e1e1e) alike.
_COLORS: dict[Style, str] = {"bad": "#e03e3e", "warning": "#b77400", "good": "#2f9140", "faint": "#7f7f7f"}
_REMARKS: dict[Severity, tuple[str, Style]] = {
    "error": ("✗", "bad"),
    "warning": ("!", "warning"),
    "info": ("·", "faint"),
}
# Said in full, because notebooks have styles of their own for tables: centred, striped, of equal columns.
_TABLE = "border-collapse:collapse;table-layout:auto;margin:0"
_CELL = "padding:1px 12px 1px 0;text-align:{align};vertical-align:top;border:0;{more}"


def measurement(m: Measurement) -> str:
    """A fragment of HTML; inherits the page's font and works on light and dark backgrounds."""
    title, where = heading(m)
    faint = f"<div style='opacity:.65;font-size:90%'>{escape(where)}<br>{escape(m.signature)}</div>"
    body = "".join(map(_section, sections(m)))
    table = f"<table style='{_TABLE}'>{body}</table>"
    return (
        f"<div class='benchax' style='overflow-wrap:anywhere'><b>{escape(title)}</b>{faint}{table}{_remarks(m)}</div>"
    )


def _section(section: Section) -> str:
    cell = _CELL.format(align="left", more="padding-top:8px;")
    title = f"<tr style='background:none'><td colspan=3 style='{cell}'><b>{escape(section.title)}</b></td></tr>"
    return title + "".join(map(_row, section.rows))


def _row(row: TextRow) -> str:
    color = f"color:{_COLORS[row.style]};" if row.style in _COLORS else ""
    label = _CELL.format(align="left", more=f"padding-left:12px;white-space:nowrap;{color}")
    value = _CELL.format(align="right", more=f"white-space:nowrap;font-variant-numeric:tabular-nums;{color}")
    detail = _CELL.format(align="left", more=color or "opacity:.75;")
    detail_text = escape(row.detail).replace("\n", "<br>")
    return (
        f"<tr style='background:none'><td style='{label}'>{escape(row.label)}</td>"
        f"<td style='{value}'>{escape(row.value)}</td><td style='{detail}'>{detail_text}</td></tr>"
    )


def _remarks(m: Measurement) -> str:
    if not m.remarks:
        return ""
    return f"<div style='padding-top:8px'><b>remarks</b>{''.join(map(_remark, m.remarks))}</div>"


def _remark(remark: Remark) -> str:
    mark, style = _REMARKS[remark.severity]
    colored = f"<span style='color:{_COLORS[style]}'>{mark}</span>"
    return f"<div style='padding-left:24px;text-indent:-12px'>{colored} {escape(remark.message)}</div>"
