"""What holds for every result: it is a document, and each renderer shows all of it, whatever its names are."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from rendered_documents import check_rendered
from results_by_hand import every_result

from benchax.reporting import display, error_rates, history
from benchax.reporting.document import Document, TableColumn, list_lines, list_remarks, tabulate
from benchax.results import Displayed

NAMES = ("f", "[red]a|b* `c`_d_</td><script>alert('x')</script>\n&amp; @me", "数学 🦊 " * 8)
KINDS = tuple(every_result("f"))


def documents(result: Any) -> Iterator[Document]:
    """As a terminal and as a page show it."""
    functions = {"History": history.document, "ErrorRates": error_rates.document}
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


def test_each_kind_of_result_has_a_document() -> None:
    for module in ("audit", "cache", "difference", "experiment", "inspection", "profile", "transfers", "watch"):
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


def test_lists_of_nothing_are_no_blocks() -> None:
    assert (list_lines([]), list_remarks([])) == ((), ())
