"""How results show themselves: as text, in IPython and in a notebook. What they say is made in `benchax.reporting`.

`repr` stays that of a dataclass, exact and in full: two results with one repr are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RENDERERS: dict[str, Callable[[Any], Any]] = {}
"""Filled by `benchax.reporting.display`: how results show themselves as "text", "html" and (comparisons) "figure"."""


class SelfRendering:
    """What is shown by what `benchax.reporting.display` has put into `RENDERERS`."""

    def __str__(self) -> str:
        # Empty where no public name was imported: then nothing has taught results to show themselves.
        return RENDERERS["text"](self) if "text" in RENDERERS else repr(self)

    def _repr_html_(self) -> str | None:
        return RENDERERS["html"](self) if "html" in RENDERERS else None

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """In a terminal of IPython."""
        printer.text(str(self))
