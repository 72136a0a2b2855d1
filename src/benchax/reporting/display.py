"""Teaches `Measurement` to show itself: `print(m)` and, in a notebook, `m`. Imported with the first public name.

The renderers are loaded when something is shown, so that this import weighs nothing.
"""

from __future__ import annotations

from benchax.model import RENDERERS, Measurement


def _text(m: Measurement) -> str:
    from benchax.reporting import terminal

    return terminal.to_text(terminal.measurement(m))


def _html(m: Measurement) -> str:
    from benchax.reporting import html

    return html.measurement(m)


RENDERERS.update(text=_text, html=_html)
