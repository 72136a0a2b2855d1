"""How results show themselves: as text, in IPython, in a notebook, and as pages. `benchax.reporting` makes the content.

`repr` is one line, so that a result at a prompt, in a list, or in a traceback doesn't fill the screen.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from typing import Any


def load_display() -> Any:
    """`benchax.reporting.display`, which is far above this. It is loaded when a result is shown: a row that comes from
    a pickle, a magic or a command shows itself too."""
    return importlib.import_module("benchax.reporting.display")


class SavedAsPage:
    """A result that can become a separate page."""

    def to_html(self, file: str | os.PathLike[str]) -> None:
        """Writes a page: one file that needs no network, with everything that `print` shows, and interactive charts.

        Raises:
            UsageError: the file cannot be written; what was there before is unchanged.
        """
        load_display().save(self, file)


class SelfRendering(SavedAsPage):
    """A result that `print`, IPython and notebooks show in full, and `repr` in one line."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A dataclass creates a `__repr__` with all fields unless its class has one.
        cls.__repr__ = SelfRendering.__repr__

    def __repr__(self) -> str:
        line = load_display().line(self)
        return f"<{type(self).__name__} {line}>" if line else f"<{type(self).__name__}>"

    def __str__(self) -> str:
        return load_display().text(self)

    def _repr_html_(self) -> str:
        return load_display().fragment(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """In a terminal of IPython."""
        printer.text(str(self))


class Displayed(SelfRendering):
    """A dataclass that shows itself, and becomes plain data."""

    def asdict(self) -> dict[str, Any]:
        """For JSON; tuples become lists there."""
        result: Any = self  # each of them is a dataclass
        return dataclasses.asdict(result)
