"""Converts many lines of a CSV file to columns, by `np.loadtxt`: about 10 µs for a row of 35 columns.

NumPy and Python do not agree about every line. NumPy splits at more kinds of blanks, skips empty lines, and cannot
express damage. So NumPy reads a block only if both must give the same result, and if NumPy accepts everything in it.
`lines.parse` reads every other block (edited by hand, damaged, without a header) line by line, and decides what a line
means. This module only adds speed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_jax_bench.csv.lines import COLUMNS, END, KINDS, MISSING, Kind, LineForm, parse
from pytest_jax_bench.csv.text import unword

DTYPES: dict[Kind, Any] = {"int": np.int64, "float": np.float64, "text": np.object_}
_FEW = 8
"""Fewer lines than this are read one by one: calling NumPy takes as long."""
_OTHER_BLANKS_OF_ASCII = "\t\r\v\f\x1c\x1d\x1e\x1f"
_OTHER_BLANK = re.compile(r"[^\S \n]")


@dataclass
class Piece:
    """The rows of one block, in order."""

    count: int
    columns: dict[str, Any]
    """An array, or one value for all rows."""
    damaged: list[str] = field(default_factory=list[str])
    """Lines that could not be read, and are not among the rows."""

    def column(self, name: str) -> list[Any]:
        """As Python values, one per row."""
        return np.broadcast_to(np.asarray(self.columns.get(name), DTYPES[KINDS[name]]), self.count).tolist()


def read_block(block: bytes | memoryview, form: LineForm | None, wanted: Sequence[str] = COLUMNS) -> Piece:
    """The rows in `block`, whole lines with their line breaks. Keeps no reference to it."""
    text = str(block, "utf-8", "surrogateescape")
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    if form is not None and len(lines) >= _FEW and not _has_other_blanks(text):
        try:
            return _read_together(lines, form, wanted)
        except (ValueError, DeprecationWarning):
            # A line that NumPy cannot read, or would read otherwise some day. Line by line, which is slower, the others
            # are read all the same, and that one is named among the damaged.
            pass
    return _read_singly(lines, form, wanted)


def _has_other_blanks(text: str) -> bool:
    """Is there a blank that is neither a space nor the end of a line?"""
    if text.isascii():  # as most often; eight searches of one character take a hundredth of the other's time
        return any(blank in text for blank in _OTHER_BLANKS_OF_ASCII)
    return _OTHER_BLANK.search(text) is not None


def _read_together(lines: Sequence[str], form: LineForm, wanted: Sequence[str]) -> Piece:
    """Raises `ValueError` or `DeprecationWarning` where any line is not whole and plain."""
    # By position: a damaged header may name a column twice.
    types = [(f"{i}", DTYPES[KINDS.get(name, "text")]) for i, name in enumerate(form.columns)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # "1.0" where an integer should be
        table = np.loadtxt(lines, types, comments=None, encoding=None, ndmin=1)
    if len(table) != len(lines) or (form.has_end and (table[f"{len(types) - 1}"] != END).any()):
        raise ValueError("a line is damaged")
    places = {name: f"{i}" for i, name in enumerate(form.columns)}
    return Piece(
        len(table),
        {n: _decode(table[places[n]], KINDS[n], form) if n in places else MISSING[KINDS[n]] for n in wanted},
    )


def _decode(values: npt.NDArray[Any], kind: Kind, form: LineForm) -> npt.NDArray[Any]:
    if kind != "text":
        return values
    words = values.tolist()
    # Equal texts as one object, which saves memory.
    texts = {word: unword(word) if form.version > 1 else word for word in set(words)}
    return np.array([texts[word] for word in words], np.object_)


def _read_singly(lines: Sequence[str], form: LineForm | None, wanted: Sequence[str]) -> Piece:
    parsed = [parse(line, form) for line in lines]
    rows = [row for row in parsed if row is not None]
    columns = {name: np.array([row[name] for row in rows], DTYPES[KINDS[name]]) for name in wanted}
    return Piece(
        len(rows), columns, [x for x, row in zip(lines, parsed, strict=True) if row is None and _is_content(x)]
    )


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")
