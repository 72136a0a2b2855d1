"""Teaches `Measurement` to show itself: `print(m)` and, in a notebook, `m`. Imported with the first public name.

The renderers are loaded when something is shown, so that this import weighs nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchax.model import RENDERERS

if TYPE_CHECKING:
    from benchax.comparing.ranking import Comparisons
    from benchax.reporting.document import Document

_DOCUMENTS: dict[str, str] = {
    "Measurement": "measurement",
    "Experiment": "experiment",
    "Comparisons": "comparisons",
    "Checklist": "checklist",
    "Audit": "audit",
    "Watch": "watch",
    "CacheUse": "cache",
    "Transfers": "transfers",
    "Profile": "profile",
    "ProfileChange": "profile_change",
}
"""Type of a result → the module of `benchax.reporting` whose `document` says what it is."""


def _document(result: Any) -> Document:
    module = importlib.import_module(f"benchax.reporting.{_DOCUMENTS[type(result).__name__]}")
    return module.document(result)


def _text(result: Any) -> str:
    from benchax.reporting import terminal

    return terminal.to_text(_document(result))


def _html(result: Any) -> str:
    from benchax.reporting import html

    return html.fragment(_document(result))


def _comparisons_figure(found: Comparisons) -> Any:
    from benchax.reporting import comparison_figure

    return comparison_figure.figure(found)


_SHOWN: dict[str, str] = {
    "Inspection": "inspection",
    "Difference": "difference",
}
"""Type of `benchax.results` → the module of `benchax.reporting` whose `text` and `html` draw it."""


def _late(module: str, function: str) -> Callable[[Any], str]:
    return lambda result: getattr(importlib.import_module(f"benchax.reporting.{module}"), function)(result)


for _type, _module in _SHOWN.items():
    RENDERERS[_type] = _late(_module, "text")
    RENDERERS[f"{_type} html"] = _late(_module, "html")

for _type in _DOCUMENTS:
    RENDERERS[_type] = _text
    RENDERERS[f"{_type} html"] = _html

RENDERERS.update(
    text=_text,
    html=_html,
    comparisons=_text,
    comparisons_html=_html,
    comparisons_figure=_comparisons_figure,
)
