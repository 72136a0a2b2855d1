"""What holds for every result: it is a document, and each renderer shows all of it, whatever its names are."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from rendered_documents import check_rendered
from results_by_hand import every_result

from benchax.model import Remark
from benchax.reporting import comparisons, display, history, html, markdown
from benchax.reporting.display import document_of
from benchax.reporting.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    Outline,
    OutlineColumn,
    OutlineEntry,
    Paragraph,
    Remarks,
    Section,
    Sparkline,
    Table,
    TableColumn,
    TextRow,
    decode_document,
    encode_document,
    list_lines,
    tabulate,
    tabulate_outline,
)
from benchax.reporting.html import encode_outline
from benchax.reporting.markdown import escape, render
from benchax.reporting.terminal import to_text
from benchax.results import Displayed

NAMES = ("f", "[red]a|b* `c`_d_</td><script>alert('x')</script>\n&amp; @me", "数学 🦊 " * 8)
KINDS = tuple(every_result("f"))


def documents(result: Any) -> Iterator[Document]:
    """As a terminal and as a page show it."""
    functions = {"History": history.document, "ErrorRates": comparisons.document_of_error_rates}
    if own := functions.get(type(result).__name__):
        yield own(result)
        return
    yield display.document_of(result)
    yield display.document_of(result, is_for_page=True)


@pytest.mark.parametrize("name", NAMES, ids=["plain", "hostile", "wide"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_renderer_shows_all_of_a_result(kind: str, name: str) -> None:
    for document in documents(every_result(name)[kind]):
        check_rendered(document)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_stays_a_table_at_80_columns_with_names_of_40_characters(kind: str) -> None:
    tables = [
        replace(block, note="")
        for document in documents(every_result("benchmark_matrix_multiplication_of_large")[kind])
        for block in document.blocks
        if isinstance(block, Table)
    ]

    for table in tables:
        lines = to_text(Document((table,)), 80).splitlines()
        # Row by row, there would be a line for each cell, and blank lines between the rows.
        assert "" not in lines
        assert max(map(len, lines)) <= 80


def test_each_kind_of_result_has_a_document() -> None:
    for module in ("audit", "experiment", "inspection", "profile", "watch"):
        importlib.import_module(f"benchax.results.{module}")
    shown = {kind.__name__ for kind in Displayed.__subclasses__()}

    assert shown <= display.DOCUMENTS.keys() <= set(KINDS)


@pytest.mark.parametrize("kind", display.DOCUMENTS)
def test_a_result_shows_itself_as_text_and_in_a_notebook(kind: str) -> None:
    result = every_result("a<b")[kind]

    assert "a<b" in str(result)
    assert "a&lt;b" in result._repr_html_()


# ---- making them ------------------------------------------------------------------------------------------------


def test_columns_in_which_nothing_stands_are_left_out_unless_they_are_kept() -> None:
    table = tabulate(("a", "b", "c"), [("1", "", ""), ("2", "", "x")])

    assert table.without_empty_columns().names == ("a", "c")
    assert table.without_empty_columns(kept=(1,)).names == ("a", "b", "c")
    assert table.without_empty_columns().lines == (("1", ""), ("2", "x"))


def test_a_name_alone_is_a_column_of_numbers_and_a_style_is_that_of_its_row() -> None:
    table = tabulate((TableColumn("case", "names"), "wall"), [("f", "1 s"), ("g", "")], ["", "bad"])

    assert table.columns[1] == TableColumn("wall", "numbers")
    assert [[cell.style for cell in row] for row in table.rows] == [["", ""], ["bad", "bad"]]


DOT = OutlineEntry("dot.1", "dot", (2e6, 64.0), "f32[8]", "m.py:3", (), 7, (3,))
LAYER = OutlineEntry("layer0", "scope", (2.5e6, 64.0), "2 operations", parts=(DOT,) * 2)
LAPACK = OutlineEntry("chol.2", "lapack", (None, 0.0))
OUTLINE = Outline(
    "boxes", (OutlineColumn("work", "flop"), OutlineColumn("bytes", "bytes")), (LAYER, LAPACK), "of one call"
)


def test_a_table_has_what_is_known_and_says_what_is_not(snapshot: Any) -> None:
    assert to_text(Document((tabulate_outline(OUTLINE),))) == snapshot


def test_a_table_has_whole_levels_and_says_how_much_is_inside_and_how_much_is_missing() -> None:
    wide = OutlineEntry("wide", "scope", (1.0, 1.0), "80 operations", parts=(DOT,) * 80)

    table = tabulate_outline(Outline("", OUTLINE.columns, (LAPACK, wide)))
    many = tabulate_outline(Outline("", OUTLINE.columns, (LAPACK,) * 100, "of one call"))

    assert [line[0] for line in table.lines] == ["lapack chol.2", "scope wide"]
    assert table.lines[1][-1] == "80 operations · 80 boxes inside"
    assert (len(many.rows), many.note) == (60, "of one call 40 other boxes are not in this table.")


def test_every_renderer_shows_it() -> None:
    document = Document((OUTLINE,))

    for text in (to_text(document), markdown.render(document), html.fragment(document)):
        assert all(word in text for word in ("boxes", "layer0", "2.50 MFLOP", "not known", "of one call"))


def test_data_for_a_page_write_each_text_once_and_leave_out_empty_ends(snapshot: Any) -> None:
    assert json.dumps(encode_outline(OUTLINE), indent=1) == snapshot


@pytest.mark.parametrize("kind", ["Watch", "CacheUse", "Transfers", "Measurement", "Checklist"])
def test_a_document_arrives_as_it_was(kind: str) -> None:
    document = document_of(every_result("f <b>\n")[kind])

    assert decode_document(json.loads(json.dumps(encode_document(document)))) == document


TABLE = tabulate((TableColumn("case", "names"), "wall", TableColumn("why", "words")), [("f[n=8]", "1 s", "")], note="n")
FACTS = (TextRow("compile", "250 ms", "missed\nthe cache"), TextRow("", "and more"))
SHOWN: dict[str, tuple[Block, ...]] = {
    "headings, sentences, and lists": (
        Heading("f", 1, ("cpu", "jax 0.10.2")), Heading("why", aside="a.py:3"), Paragraph("a\nb"),
        *list_lines(["one", "two"]),
    ),
    "numbers of a table end at the right, and names are code": (TABLE,),
    "facts and remarks are lists": (Facts((Section("once", FACTS),)), Remarks((Remark("x", "warning", "noisy"),))),
    "a program is in a fence that it cannot close": (Code("hlo", "a ```` b\n  c", "HLO"), Code("diff", "+a")),
    "a chart is a line of bars": (Sparkline((1.0, 2.0), "1 to 2"),),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_each_kind_of_block_has_its_markdown(name: str, snapshot: Any) -> None:
    assert render(Document(SHOWN[name])) == snapshot


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("*a* _b_ `c`", "&#42;a&#42; &#95;b&#95; &#96;c&#96;"),
        ("<b>", "&#60;b&#62;"),
        ("- a", "&#45; a"),
        ("---", "&#45;--"),
        ("-50 %", "-50 %"),
        ("1. a", "1&#46; a"),
        ("1.00 s", "1.00 s"),
        ("@me #1 http://x", "&#64;me &#35;1 http&#58;//x"),
        ("a\n\tb\x00", "a b&#92;x00"),
    ],
)
def test_a_text_formats_nothing(written: str, expected: str) -> None:
    assert escape(written) == expected
