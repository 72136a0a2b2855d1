"""How results show themselves: as text, in IPython, in a notebook, and as pages. What they say is made in
`benchax.reporting`.

`repr` stays that of a dataclass, exact and in full: two results with one repr are equal.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

RENDERERS: dict[str, Callable[..., Any]] = {}
"""Filled by `benchax.reporting.display`: how results show themselves as "text", "html" and (comparisons) "figure", and
how they "save" a page."""


class SavedAsPage:
    """What becomes a page of its own."""

    def to_html(self, file: str | os.PathLike[str]) -> None:
        """Writes a page: one file that needs no network, with all that `print` says and charts that answer to pointer
        and keys.

        Raises:
            UsageError: there can be no such file; what was there before is unchanged.
        """
        RENDERERS["save"](self, file)


class SelfRendering(SavedAsPage):
    """What is shown by what `benchax.reporting.display` has put into `RENDERERS`."""

    def __str__(self) -> str:
        # Empty where no public name was imported: then nothing has taught results to show themselves.
        return RENDERERS["text"](self) if "text" in RENDERERS else repr(self)

    def _repr_html_(self) -> str | None:
        return RENDERERS["html"](self) if "html" in RENDERERS else None

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """In a terminal of IPython."""
        printer.text(str(self))
