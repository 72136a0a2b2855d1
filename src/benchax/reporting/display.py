"""Teaches `Measurement` to show itself: `print(m)` and, in a notebook, `m`. Imported with the first public name.

The renderers are loaded when something is shown, so that this import weighs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchax.model import RENDERERS, Measurement

if TYPE_CHECKING:
    from benchax.comparing.ranking import Comparisons


def _text(m: Measurement) -> str:
    from benchax.reporting import terminal

    return terminal.to_text(terminal.measurement(m))


def _html(m: Measurement) -> str:
    from benchax.reporting import html

    return html.measurement(m)


def _comparisons(found: Comparisons) -> str:
    from benchax.reporting import comparisons

    return comparisons.text(found)


def _comparisons_html(found: Comparisons) -> str:
    from benchax.reporting import comparisons

    return comparisons.html(found)


def _comparisons_figure(found: Comparisons) -> Any:
    from benchax.reporting import comparison_figure

    return comparison_figure.figure(found)


RENDERERS.update(
    text=_text,
    html=_html,
    comparisons=_comparisons,
    comparisons_html=_comparisons_html,
    comparisons_figure=_comparisons_figure,
)
