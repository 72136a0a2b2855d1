"""How results show themselves: `m` at a prompt, `print(m)`, `m` in a notebook, and `m.to_html(file)`, for
`benchax.renderers`.

A room is loaded when one of its results is shown.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from benchax.printable import show_line

if TYPE_CHECKING:
    import os

    from benchax.reporting.document import Block, Document

DOCUMENTS: dict[str, str] = {
    "Audit": "audit.document",
    "CacheUse": "watch.document_of_cache",
    "Checklist": "audit.document_of_checklist",
    "Comparisons": "comparisons.document",
    "Difference": "inspection.document_of_difference",
    "Experiment": "experiment.document",
    "GridResult": ".grids.rendering.document",
    "History": "history.document",
    "Inspection": "inspection.document",
    "Measurement": "measurement.document",
    "Profile": "profile.document",
    "ProfileChange": "profile.document_of_change",
    "Scaling": "experiment.document_of_scaling",
    "Transfers": "watch.document_of_transfers",
    "Watch": "watch.document",
}
"""Type of a result → the function that turns it into a document, as seen from `benchax.reporting`."""
PARTS: dict[str, str] = {
    "Stages": "measurement.document_of_stages",
    "Summary": "measurement.document_of_summary",
}
"""The parts of a row."""
ON_PAGES = DOCUMENTS | {
    "Comparisons": "comparisons.document_with_chart",
    "GridResult": ".grids.rendering.document_with_chart",
    "Inspection": "inspection.document_with_texts",
}
"""A notebook has charts, and folds long texts."""
PAGES = (
    PARTS
    | ON_PAGES
    | {
        "Audit": "audit.document_in_full",
        "Comparisons": "comparisons.document_for_page",
        "GridResult": ".grids.rendering.document_for_page",
        "History": "history.document_with_chart",
        "Measurement": "measurement.document_with_charts",
        "Inspection": "inspection.document_with_charts",
        "Profile": "profile.document_with_charts",
        "Rows": "measurement.documents_of_run",
    }
)
"""A page of its own has more of them. A function may give several documents: the page's own first, then its parts."""
LINES = {"Comparisons": "comparisons.describe", "Measurement": "measurement.describe"}
LONGEST_LINE = 120
"""Characters of a `repr`."""


def document_of(result: Any, is_for_page: bool = False) -> Document:
    return _make(result, PARTS | (ON_PAGES if is_for_page else DOCUMENTS))


def documents_of(result: Any) -> tuple[Document, ...]:
    """Returns the parts of a separate page."""
    found: Document | tuple[Document, ...] = _make(result, PAGES)
    return found if isinstance(found, tuple) else (found,)


def _make(result: Any, functions: dict[str, str]) -> Any:
    return _call(functions[type(result).__name__], result)


def _call(name: str, *arguments: Any) -> Any:
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f".{module}", "benchax.reporting"), function)(*arguments)


def _in_python(result: Any, is_for_page: bool = False) -> Document:
    return _call("document.in_python", document_of(result, is_for_page))


def line(result: Any) -> str:
    """The answer, if the result has one; else the first words of its text."""
    if type(result).__name__ in LINES:
        words = _make(result, LINES)
    else:
        words = ": ".join([found for block in _in_python(result).blocks if (found := _words_of(block))][:2])
    return show_line(_call("tables.truncate", words, LONGEST_LINE))


def _words_of(block: Block) -> str:
    from benchax.reporting import document

    match block:
        case document.Heading() | document.Paragraph():
            return block.text
        case document.List():
            return "; ".join(item.text for item in block.items)
        case document.Facts():
            return ", ".join(f"{row.label} {row.value}".strip() for section in block.sections for row in section.rows)
        case _:
            return ""


def text(result: Any) -> str:
    return _call("terminal.to_printed", _in_python(result))


def fragment(result: Any) -> str:
    return _call("html.fragment", _in_python(result, is_for_page=True))


def figure(result: Any) -> Any:
    """Draws comparisons."""
    return _call("comparisons.figure", result)


def save(result: Any, file: str | os.PathLike[str]) -> None:
    _call("html.save_page", file, documents_of(result))
