"""The small print of a picture: what its dots and bars are, and what its rows do not have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_jax_bench.plots.labels import short
from pytest_jax_bench.plots.model import Panel

SYMBOLS = ("●", "■", "◆", "▲", "▼")
"""The markers of `drawing`, for use in a sentence."""


def notes(panels: Sequence[Panel], instruments: Sequence[tuple[str, str, str]], is_connected: bool) -> tuple[str, ...]:
    """Sentences to stand below a picture.

    Args:
        instruments: timer, environment and version of JAX of each line of the picture.
    """
    return tuple(text for text in (_what(panels), _whose(instruments, is_connected)) if text)


def _what(panels: Sequence[Panel]) -> str:
    times = [s for panel in panels if panel.title.startswith("run time") for s in panel.series]
    medians = [s for s in times if not s.is_mean]
    sentences: list[str] = []
    if medians:
        bare = any((np.isfinite(s.value) & ~np.isfinite(s.high - s.low)).any() for s in medians)
        sentences.append("Run times are medians with 95 % intervals" + "; without a bar, of too few samples" * bare)
    if len(medians) < len(times):
        sentences.append("+ is a mean with the standard deviation of its samples, which is all that older rows hold")
    if any(panel.title == "compile time" for panel in panels):
        sentences.append("A compile time is one reading")
    if {s.label for s in times if s.is_hollow} & {s.label for s in times if not s.is_hollow}:
        sentences.append("Hollow: eager")
    return ". ".join(sentences) + "." * bool(sentences)


def _whose(instruments: Sequence[tuple[str, str, str]], is_connected: bool) -> str:
    """Names the lines where there are several, by what differs between them."""
    if len(instruments) < 2:
        return ""
    differ = [len(set(column)) > 1 for column in zip(*instruments, strict=True)]
    names = [f"{mark} {_name_instrument(one, differ)}" for mark, one in zip(SYMBOLS, instruments, strict=False)]
    names += [f"{len(instruments) - len(names)} more"] * (len(instruments) > len(names))
    only = ", and lines connect only those that can" if is_connected else ""
    return f"Not all rows can be compared{only}: {'; '.join(names)}."


def _name_instrument(instrument: tuple[str, str, str], differ: Sequence[bool]) -> str:
    words = ("timer", "environment", "jax")
    known = [f"{word} {short(value, 10)}" for word, value, is_told in zip(words, instrument, differ, strict=True)
             if is_told and value]  # fmt: skip
    return ", ".join(known) or "machine and timer unknown"
