"""Numbers are read as Python reads them, in blocks as in single lines."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_jax_bench.csv import blocks
from pytest_jax_bench.csv.lines import CURRENT, complete, line

COLUMN = {"float": "jit_mean_ms", "int": "jit_peak_bytes"}
MARK = {"float": "777.25", "int": "77777"}
ALIKE = line(complete({COLUMN["float"]: float(MARK["float"]), COLUMN["int"]: int(MARK["int"])}))


def read_column(kind: str, words: Sequence[str]) -> tuple[list[Any], list[str]]:
    """The values of one column, by NumPy as far as it can, and the lines that are damaged."""
    lines = [re.sub(rf"(?<= ){MARK[kind]}(?= )", lambda _, word=word: word, ALIKE, count=1) for word in words]
    with patch.object(blocks, "_FEW", 1):
        piece = blocks.read_block("".join(f"{text}\n" for text in lines).encode(), CURRENT)
    return piece.column(COLUMN[kind]), piece.damaged


def read_together(kind: str, words: Sequence[str]) -> list[Any]:
    """Fails where a block is read line by line."""
    with patch.object(blocks, "_read_singly", side_effect=AssertionError("read line by line")):
        return read_column(kind, words)[0]


def same(found: Sequence[float], expected: Sequence[float]) -> bool:
    return [math.nan if x != x else x for x in found] == pytest.approx(list(expected), rel=0, abs=0, nan_ok=True)


@given(st.lists(st.floats(width=64), min_size=1, max_size=20))
def test_every_float_comes_back_from_its_repr(values: list[float]) -> None:
    assert same(read_together("float", [repr(v) for v in values]), values)


def test_ten_thousand_floats_of_17_digits_are_rounded_correctly() -> None:
    values = (10 ** np.random.default_rng(0).uniform(-4, 7, 10_000)).tolist()

    assert read_together("float", [repr(v) for v in values]) == values


def test_numbers_halfway_between_two_floats_are_rounded_correctly() -> None:
    """2**53 + 1 and its like, where rounding twice goes wrong; below and above a power of two."""
    texts = [f"{2**53 + k}.0" for k in range(-9, 10)] + [f"{2**54 + k}.0" for k in range(-9, 10)]
    texts += [f"{2**53 + 1}.{'0' * zeros}{end}" for zeros in range(6) for end in "01"]
    texts += ["0.1000000000000000055", "0.3000000000000000166", "4503599627370496.5", "4503599627370497.5"]

    assert read_together("float", texts) == [float(text) for text in texts]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_every_integer_comes_back(values: list[int]) -> None:
    assert read_together("int", [str(v) for v in values]) == values


@pytest.mark.parametrize("text", [".5", "5.", "+1.5", "-0.0", "1e5", "1_0.5", "infinity", "nan", "007.5", "1e999"])
def test_unusual_numbers_are_read_as_python_reads_them(text: str) -> None:
    assert same(read_column("float", [text, "1.0"])[0], [float(text), 1.0])


@pytest.mark.parametrize("kind", ["int", "float"])
@given(words=st.lists(st.text("0123456789.-+eExX nainf_()", min_size=1, max_size=26), min_size=1, max_size=4))
def test_what_is_no_number_is_never_taken_for_one(kind: str, words: list[str]) -> None:
    words = ["".join(word.split()) or "x" for word in words]
    expected: list[float] = []
    for word in words:
        try:
            expected.append({"int": int, "float": float}[kind](word))
        except ValueError:
            continue

    found, damaged = read_column(kind, words)

    assert same(found, expected)
    assert len(damaged) == len(words) - len(expected)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("float", text) for text in ("1 2.3", ".", "1.2.3", "1,5", "0x1p3", "nan(1)")),
        *(("int", text) for text in ("1 2", ".", "1.0", "1,5", "0x1", "1e3", "9223372036854775808")),
    ],
)
def test_a_damaged_number_costs_its_row_and_no_other(kind: str, text: str) -> None:
    values, damaged = read_column(kind, ["1", text, "2"])

    assert values == [1, 2]
    assert len(damaged) == 1
    assert text in damaged[0]
