"""Quantities to text and back: nothing is lost but digits, nothing is ever written with an exponent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refusal

from benchax import units
from benchax.errors import UsageError
from benchax.units import (
    SECONDS,
    count,
    number,
    parse_seconds,
    parse_size,
    percent,
    plural,
    rate,
    seconds,
    size,
)

TIMES = st.floats(1e-15, 1e6)
DIGITS = st.integers(1, 9)

NOT_A_TIME = "\nexpected a time such as 0.5, 500ms, 20us or 2min"
NOT_A_SIZE = "\nexpected a size such as 4096, 64MiB or 2GB"
TYPED = st.text() | st.from_regex(r"[-+]?[0-9.eE]{0,8} ?[a-zA-Zµμ]{0,3}")


def attempt(parse: Callable[[str], float], text: str) -> float | UsageError:
    try:
        return parse(text)
    except UsageError as error:
        return error


def decimals(text: str) -> int:
    return len(text.split()[0].partition(".")[2])


def half_of_the_last_digit(text: str, scale: float) -> float:
    """The most that rounding may have moved the value, with room for the last bits of floats."""
    return 0.5 * 10.0 ** -decimals(text) * scale * (1 + 1e-6)


# Times


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (58.1e-6, "58.1 µs"), (1.0, "1.00 s"), (12, "12.0 s"), (3.2e-9, "3.20 ns"), (0.3e-9, "0.300 ns"),
        (1250.0, "1250 s"), (1e6, "1000000 s"), (-58.1e-6, "-58.1 µs"), (0, "0 s"), (-0.0, "0 s"),
        (math.nan, "nan s"), (math.inf, "inf s"),
        # rounding carries into the next digit and the next unit
        (0.99996e-3, "1.00 ms"), (999.6e-9, "1.00 µs"), (999.6e-3, "1.00 s"), (999.4e-6, "999 µs"),
        (9.996e-6, "10.0 µs"), (99.96e-6, "100 µs"), (-0.99996e-3, "-1.00 ms"),
    ],
)  # fmt: skip
def test_a_time_reads_in_the_unit_that_suits_it(value: float, text: str) -> None:
    assert seconds(value) == text


@given(TIMES, DIGITS)
def test_a_time_read_again_is_within_half_of_its_last_digit(value: float, digits: int) -> None:
    text = seconds(value, digits)

    scale = SECONDS[text.split()[1]]
    assert abs(parse_seconds(text) - value) <= half_of_the_last_digit(text, scale)


@given(TIMES, DIGITS)
def test_a_time_has_the_digits_that_were_asked_for_and_no_exponent(value: float, digits: int) -> None:
    text = seconds(value, digits)

    mantissa = text.split()[0]
    assert re.fullmatch(r"\d+(\.\d+)?", mantissa)
    shown = mantissa.replace(".", "").lstrip("0")
    assert len(shown) == digits or (len(shown) > digits and "." not in mantissa)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (57.2e-6, 59.3e-6, "57.2 – 59.3 µs"),
        (900e-6, 1.1e-3, "0.900 – 1.10 ms"),
        (-2e-3, 1e-6, "-2.00 – 0.00100 ms"),
        (0, 0, "0 – 0 s"),
        (1e-4, 1e-4, "100 – 100 µs"),
        (112.13e-6, 112.41e-6, "112.1 – 112.4 µs"),  # the digits that tell the ends apart
    ],
)
def test_both_ends_of_a_range_have_the_unit_of_the_greater(low: float, high: float, text: str) -> None:
    assert units.seconds_range(low, high) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5), (0.5, 0.5), (2, 2.0), ("500ms", 0.5), ("  500 ms  ", 0.5), ("20us", 20e-6),
        ("20µs", 20e-6), ("20μs", 20e-6),  # the micro sign, and the Greek letter
        ("3ns", 3e-9), ("2min", 120.0), ("2 min", 120.0), ("1s", 1.0), (".5s", 0.5), ("5.s", 5.0), ("+1.5", 1.5),
        ("-1.5 ms", -1.5e-3), ("1e3ms", 1.0), ("1E-3", 1e-3), ("0", 0.0),
    ],
)  # fmt: skip
def test_what_people_type_is_read_as_seconds(text: str | float, value: float) -> None:
    assert parse_seconds(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    "value",
    ["", "s", "fast", "5 MIN", "1 h", "1,5", "1_000", "nan", "inf", "1e999", "1 2", "--1", "5ms5", "0x10", "1e", ".",
     True, False, math.nan, math.inf, None, [1], b"1"],
)  # fmt: skip
def test_what_is_not_a_time_is_quoted(value: Any) -> None:
    assert refusal(parse_seconds, value) == f"cannot read {value!r} as a quantity{NOT_A_TIME}"


@given(TYPED)
@example("1e400 s")
def test_any_text_is_a_finite_quantity_or_a_usage_error(text: str) -> None:
    a_time, a_size = attempt(parse_seconds, text), attempt(parse_size, text)

    assert repr(text) in a_time.problem if isinstance(a_time, UsageError) else math.isfinite(a_time)
    assert repr(text) in a_size.problem if isinstance(a_size, UsageError) else type(a_size) is int


# Sizes


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"), (1, "1 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (540_672, "528 KiB"), (12 * 2**20, "12.0 MiB"),
        (2**20 - 1, "1.00 MiB"), (1023 * 2**10, "1023 KiB"), (3 * 2**30, "3.00 GiB"), (2**40, "1.00 TiB"),
        (2**50, "1024 TiB"), (-2048, "-2.00 KiB"), (-7, "-7 B"), (0.6, "1 B"), (math.nan, "nan B"),
    ],
)  # fmt: skip
def test_a_size_reads_in_binary_units(value: float, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (4096, 4096), ("4096", 4096), ("4096 B", 4096), ("1KiB", 1024), ("64 MiB", 64 * 2**20),
        ("1.5 GiB", 3 * 2**29), ("2TiB", 2**41), ("1kB", 1000), ("2MB", 2 * 10**6), ("2GB", 2 * 10**9),
        ("2TB", 2 * 10**12), ("0.5", 0),
    ],
)  # fmt: skip
def test_what_people_type_is_read_as_bytes(text: str | float, value: int) -> None:
    found = parse_size(text)

    assert (found, type(found)) == (value, int)


@pytest.mark.parametrize("text", ["", "MiB", "big", "1 mb", "1 KB", "1 Gb", "5 ms", "1e999", "1e300TB", "nan"])
def test_what_is_not_a_size_is_quoted(text: str) -> None:
    assert refusal(parse_size, text) == f"cannot read {text!r} as a quantity{NOT_A_SIZE}"


# Counts, rates, shares


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3 FLOP"), (0, "0 FLOP"), (3.0, "3 FLOP"), (0.5, "0.500 FLOP"), (999, "999 FLOP"), (999.6, "1.00 kFLOP"),
        (24_000, "24.0 kFLOP"), (1_310_000, "1.31 MFLOP"), (999_950, "1.00 MFLOP"), (2e9, "2.00 GFLOP"),
        (2e12, "2.00 TFLOP"), (2e15, "2.00 PFLOP"), (2e18, "2000 PFLOP"), (-24_000, "-24.0 kFLOP"),
        (math.nan, "nan FLOP"),
    ],
)  # fmt: skip
def test_a_count_has_si_prefixes(value: float, text: str) -> None:
    assert (count(value, "FLOP"), rate(value, "FLOP")) == (text, f"{text}/s")
    assert (count(3), count(24_000)) == ("3", "24.0 k")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0213, "2.1 %"), (1, "100 %"), (0, "0 %"), (-0.005, "-0.50 %"), (0.000123, "0.012 %"), (12.5, "1250 %")],
)
def test_a_share_reads_in_percent(value: float, text: str) -> None:
    assert percent(value) == text


# Numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (58.12, "58.1"), (0.00312, "0.00312"), (1250, "1250"), (9.996, "10.0"), (0.09996, "0.100"), (0.9996, "1.00"),
        (999.6, "1000"), (1e21, "1000000000000000000000"), (1e-9, "0.00000000100"), (-9.996, "-10.0"), (0, "0"),
        (-0.0, "0"), (math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"),
    ],
)  # fmt: skip
def test_a_number_has_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False), DIGITS)
def test_any_number_read_again_is_right_to_its_digits(value: float, digits: int) -> None:
    text = number(value, digits)

    assert "e" not in text
    assert float(text) == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits), abs=0)


@pytest.mark.parametrize(("n", "text"), [(0, "0 programs"), (1, "1 program"), (2, "2 programs")])
def test_things_are_counted_in_words(n: int, text: str) -> None:
    assert plural(n, "program") == text
