"""Boxes where nothing unfolds: the outermost as a table, which says what stands inside; and as data for a page."""

from __future__ import annotations

import json
from typing import Any

from benchax.reporting import html, markdown
from benchax.reporting.chart_data import encode_outline
from benchax.reporting.document import Document, Outline, OutlineColumn, OutlineEntry, tabulate_outline
from benchax.reporting.terminal import to_text

DOT = OutlineEntry("dot.1", "dot", (2e6, 64.0), "f32[8]", "m.py:3", (), 7, (3,))
LAYER = OutlineEntry("layer0", "scope", (2.5e6, 64.0), "2 operations", parts=(DOT,) * 2)
LAPACK = OutlineEntry("chol.2", "lapack", (None, 0.0))
OUTLINE = Outline(
    "boxes", (OutlineColumn("work", "flop"), OutlineColumn("bytes", "bytes")), (LAYER, LAPACK), "of one call"
)


def test_a_table_has_what_is_known_and_says_what_is_not(snapshot: Any) -> None:
    assert to_text(Document((tabulate_outline(OUTLINE),))) == snapshot


def test_a_table_has_whole_levels_and_says_how_much_stands_inside() -> None:
    wide = OutlineEntry("wide", "scope", (1.0, 1.0), "80 operations", parts=(DOT,) * 80)

    table = tabulate_outline(Outline("", OUTLINE.columns, (LAPACK, wide)))

    assert [line[0] for line in table.lines] == ["lapack chol.2", "scope wide"]
    assert table.lines[1][-1] == "80 operations · 80 boxes inside"


def test_of_very_many_outermost_boxes_a_table_says_how_many_it_has_not() -> None:
    table = tabulate_outline(Outline("", OUTLINE.columns, (LAPACK,) * 100, "of one call"))

    assert len(table.rows) == 60
    assert table.note == "of one call 40 boxes beside these are not in this table."


def test_every_renderer_shows_it() -> None:
    document = Document((OUTLINE,))

    for text in (to_text(document), markdown.render(document), html.fragment(document)):
        assert all(word in text for word in ("boxes", "layer0", "2.50 MFLOP", "not known", "of one call"))


def test_data_for_a_page_write_each_text_once_and_leave_out_empty_ends(snapshot: Any) -> None:
    assert json.dumps(encode_outline(OUTLINE), indent=1) == snapshot
