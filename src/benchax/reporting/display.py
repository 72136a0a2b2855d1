"""Teaches results to show themselves: `print(m)` and, in a notebook, `m`. Imported with the first public name.

The renderers are loaded when something is shown, so that this import weighs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from benchax.renderers import RENDERERS

if TYPE_CHECKING:
    from benchax.comparing.ranking import Comparisons
    from benchax.reporting.document import Document

DOCUMENTS: dict[str, str] = {
    "Audit": "audit.document",
    "CacheUse": "cache.document",
    "Checklist": "checklist.document",
    "Comparisons": "comparisons.document",
    "Difference": "difference.document",
    "Experiment": "experiment.document",
    "Inspection": "inspection.document",
    "Measurement": "measurement.document",
    "Profile": "profile.document",
    "ProfileChange": "profile_change.document",
    "Transfers": "transfers.document",
    "Watch": "watch.document",
}
"""Type of a result → the function of `benchax.reporting` that makes a document of it."""
PARTS: dict[str, str] = {
    "Stages": "measurement.document_of_stages",
    "Summary": "statistics.document_of_summary",
}
"""Of a row: what has no name of its own."""
ON_PAGES = DOCUMENTS | {
    "Comparisons": "comparison_figure.document",
    "Inspection": "inspection.document_with_texts",
}
"""A page has charts, and folds what would fill a terminal."""


def document_of(result: Any, is_for_page: bool = False) -> Document:
    functions = PARTS | (ON_PAGES if is_for_page else DOCUMENTS)
    module, _, function = functions[type(result).__name__].partition(".")
    return getattr(importlib.import_module(f"benchax.reporting.{module}"), function)(result)


def _text(result: Any) -> str:
    from benchax.reporting import terminal
    from benchax.reporting.python_words import in_python

    return terminal.to_text(in_python(document_of(result)))


def _html(result: Any) -> str:
    from benchax.reporting import html
    from benchax.reporting.python_words import in_python

    return html.fragment(in_python(document_of(result, is_for_page=True)))


def _figure(found: Comparisons) -> Any:
    from benchax.reporting import comparison_figure

    return comparison_figure.figure(found)


RENDERERS.update(text=_text, html=_html, figure=_figure)
