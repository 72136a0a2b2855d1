"""Numbers are read as Python reads them, however fast."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.store import csv_numbers
from benchax.store.csv_numbers import Bytes, decimals, integers

WIDTH = 26


def columns(texts: Sequence[str], width: int = WIDTH) -> Bytes:
    """As they stand in a file, turned by a quarter."""
    return np.array([list(f"{text:>{width}}".encode()) for text in texts], np.uint8).T.copy()


def same(found: Sequence[float], expected: Sequence[float]) -> bool:
    return [math.nan if x != x else x for x in found] == pytest.approx(list(expected), rel=0, abs=0, nan_ok=True)


@given(st.lists(st.floats(width=64), min_size=1, max_size=20))
def test_every_float_comes_back_from_its_repr(values: list[float]) -> None:
    assert same(decimals(columns([repr(v) for v in values])).tolist(), values)


def test_a_hundred_thousand_floats_of_17_digits_are_rounded_correctly() -> None:
    random = np.random.default_rng(0)
    values = (10 ** random.uniform(-4, 7, 100_000)).tolist()

    found = decimals(columns([repr(v) for v in values]))

    assert found.tolist() == values


def test_numbers_halfway_between_two_floats_are_rounded_correctly() -> None:
    """2**53 + 1 and its like, where rounding twice goes wrong; below and above a power of two."""
    texts = [f"{2**53 + k}.0" for k in range(-9, 10)] + [f"{2**54 + k}.0" for k in range(-9, 10)]
    texts += [f"{2**53 + 1}.{'0' * zeros}{end}" for zeros in range(6) for end in "01"]
    texts += ["0.1000000000000000055", "0.3000000000000000166", "4503599627370496.5", "4503599627370497.5"]

    assert decimals(columns(texts)).tolist() == [float(text) for text in texts]


def test_without_the_long_numbers_of_x86_the_result_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_numbers, "_IS_X86", False)
    values = (10 ** np.random.default_rng(1).uniform(-4, 7, 2000)).tolist()
    values += [round(v, 3) for v in values]

    assert decimals(columns([repr(v) for v in values])).tolist() == values


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_every_integer_comes_back(values: list[int]) -> None:
    assert integers(columns([str(v) for v in values])).tolist() == values


@pytest.mark.parametrize("text", [".5", "5.", "+1.5", "-0.0", "1e5", "1_0.5", "infinity", "nan", "007.5"])
def test_unusual_numbers_are_read_as_python_reads_them(text: str) -> None:
    assert same(decimals(columns([text, "1.0"])).tolist(), [float(text), 1.0])


@given(st.lists(st.text("0123456789.-+eE nainf_", min_size=1, max_size=WIDTH), min_size=1, max_size=4))
def test_what_is_no_number_is_never_taken_for_one(texts: list[str]) -> None:
    for read, expected in ((decimals, float), (integers, int)):
        try:
            values = [expected(text) for text in texts]
            assert all(text == text.rstrip() for text in texts)  # aligned to the right
        except (ValueError, AssertionError):
            continue
        assert same(read(columns(texts)).tolist(), values)

    for text in texts:
        for read, expected in ((decimals, float), (integers, int)):
            try:
                expected(text)
            except ValueError:
                with pytest.raises(ValueError, match=r"could not convert|invalid literal"):
                    read(columns([text, "1.0"]))


@pytest.mark.parametrize("text", ["1 2.3", "1. 5", ".", "1.2.3", "", "1,5", "0x1p3"])
def test_damaged_numbers_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        decimals(columns([text, "1.0"]))
    with pytest.raises(ValueError, match="invalid literal"):
        integers(columns([text, "1"]))


def test_an_integer_beyond_64_bits_is_an_error() -> None:
    with pytest.raises(ValueError, match="too large"):
        integers(columns(["9223372036854775808", "1"]))
