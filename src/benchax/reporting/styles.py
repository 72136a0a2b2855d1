"""The meaning of a text or a mark. Every renderer has its own colours for it: a terminal, a page, a figure."""

from __future__ import annotations

from typing import Literal

from benchax.model import Severity

Style = Literal["", "good", "bad", "warning", "info", "faint", "title"]
MARKS: dict[Severity, tuple[str, Style]] = {"error": ("✗", "bad"), "warning": ("!", "warning"), "info": ("·", "faint")}
"""The marks of remarks."""
