"""Colours for the texts of programs in a terminal: jaxpr, StableHLO, HLO, and what differs between two."""

from __future__ import annotations

import re

from rich.text import Text

# In this order: what comes later wins.
_COLORS: dict[str, tuple[tuple[str, str], ...]] = {
    "jaxpr": (
        (r"\b[a-z]\w*\[[\d,]*\]", "cyan"),
        (r"(?<== )[\w.\-]+", "bold"),
        (r"\b(?:lambda|let|in)\b", "dim"),
    ),
    "stablehlo": (
        (r"tensor<[^>]*>", "cyan"),
        (r"(?<== )\"?[\w.]+\"?", "bold"),
        (r"@[\w.]+", "green"),
        (r"loc\(.*?\)$", "dim"),
    ),
    "hlo": (
        (r"\b[a-z]\w*\[[\d,]*\](?:\{[^}]*\})?", "cyan"),
        (r"(?<= )[a-z][\w\-]*(?=\()", "bold"),
        (r"^(?:ENTRY )?%[\w.\-]+(?= \()", "green"),
        (r"(?:metadata|backend_config)=\{.*", "dim"),
    ),
    "diff": ((r"^\+.*", "green"), (r"^-.*", "red"), (r"^@@.*", "cyan")),
}


def highlight(language: str, text: str) -> Text:
    """Lines stay as long as they are: a window breaks them, or a pipe does not."""
    colored = Text(text, no_wrap=True, overflow="ignore")
    for pattern, style in _COLORS[language]:
        colored.highlight_regex(re.compile(pattern, re.MULTILINE), style)
    return colored
