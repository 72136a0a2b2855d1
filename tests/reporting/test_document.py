"""What holds for every result: it is a document, and each renderer shows all of it, whatever its names are."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from comparisons_by_hand import compared
from measurement_strategies import RICH, measured
from rendered_documents import check_rendered
from results_by_hand import every_result

import benchax
from benchax.model import Absent, CaseId, Remark
from benchax.renderers import Displayed
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
    in_python,
    list_lines,
    tabulate,
    tabulate_outline,
    translate,
)
from benchax.reporting.html import encode
from benchax.reporting.markdown import escape, render
from benchax.reporting.measurement import document as document_of_row
from benchax.reporting.terminal import to_text

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


def test_data_for_a_page_leave_out_what_is_empty(snapshot: Any) -> None:
    assert json.dumps(encode(OUTLINE), indent=1) == snapshot


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


# ---- in Python -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "python"),
    [
        ("--timer in_graph,loop measures both", 'timer="in_graph,loop" measures both'),
        ("one was requested; --processes 5", "one was requested; processes=5"),
        ("--processes 5, or --processes 9 if it is noisy", "processes=5, or processes=9 if it is noisy"),
        ("a fresh one (--cold-process) shows the cost", "a fresh one (cold_process=True) shows the cost"),
        ("--no-jit (jit=False) measures the call", "jit=False measures the call"),
        ("measure it eagerly (jit=False, --no-jit).", "measure it eagerly (jit=False)."),
        ("Allow more time (--timeout, timeout_s=)", "Allow more time (timeout_s=)"),
        ("--resolution 1% tells that", 'resolution="1%" tells that'),
        ("nothing was run; --time runs it", "nothing was run; benchax.bench times it"),
    ],
)
def test_a_flag_is_the_option_that_it_is_in_python(flags: str, python: str) -> None:
    assert translate(flags) == python


def test_what_shows_itself_speaks_of_python_and_a_command_of_flags() -> None:
    m = replace(
        measured(),
        case=CaseId("--timer wall"),
        remarks=(Remark("x", "info", "see --processes 5"),),
        not_measured=(Absent("samples.loop", "ask by --timer loop"),),
    )

    assert benchax.bench  # any public name teaches rows to show themselves
    assert "see --processes 5" in to_text(document_of_row(m))
    for text in (str(m), m._repr_html_() or "", to_text(in_python(document_of_row(m)))):
        assert "see processes=5" in text
        assert "(.not_measured says why)" in text
        assert "--timer wall" in text  # a name stays a name
    assert 'ask by timer="loop"' in to_text(in_python(document_of_row(m, is_full=True)))


TIMED = replace(RICH, case=CaseId("sort"), signature="f32[1000]", failure=None)


def test_a_result_at_a_prompt_is_one_line_without_readings() -> None:
    assert benchax.bench  # any public name teaches them
    name = "a name\nof two lines"

    lines = {kind: repr(result) for kind, result in every_result(name).items() if kind != "ErrorRates"}

    assert {kind: line for kind, line in lines.items() if len(line.splitlines()) > 1 or len(line) > 160} == {}
    assert {kind for kind, line in lines.items() if not line.startswith(f"<{kind} ")} == set()
    assert repr(TIMED) == "<Measurement sort f32[1000]: wall 120 µs (110–130), loop 93.7 µs>"
    failed, bare = replace(TIMED, failure=RICH.failure), replace(TIMED, samples=())
    assert repr(failed) == "<Measurement sort f32[1000]: wrong output in verify: off by 0.1>"
    assert repr(bare) == "<Measurement sort f32[1000]: not timed>"
    assert repr(compared(0, 1.1)) == (
        "<Comparison matmul[n=256], run, now against v1.2: slower, ratio 1.10 (1.09 – 1.11)>"
    )
    assert "elapsed_s" not in repr(RICH.samples)


def test_the_parts_of_a_row_show_themselves_also_in_ipython() -> None:
    stages, summary, printed = RICH.stages, RICH.summary(), list[str]()
    stages._repr_pretty_(SimpleNamespace(text=printed.append), False)

    assert printed == [str(stages)]
    assert "250 ms" in str(stages)
    assert "Transfer(" not in str(stages)
    assert "120 µs  (110–130) 95 % interval for this process" in str(summary)
    assert "120 µs" in (summary._repr_html_() or "")
    assert "250 ms" in (stages._repr_html_() or "")
