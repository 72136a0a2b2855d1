"""Numbers in columns of characters to int64 and float64, thousands at once, rounded as `float()` rounds.

Reading 17 digits correctly takes Python and NumPy 400 ns per number, because they count with big integers. Here it is
some 60 ns. The digits of all numbers make integers below 2**64 in one go, which are divided by powers of ten in the
80-bit format of x86. Both operands are exact there (Clinger, How to read floating point numbers accurately, 1990,
section 3), so the quotient is the nearest number of 64 bits; rounding it to 53 bits again can be wrong only where it
lies halfway between two float64. Those few go to `float()`, as does everything that is no plain number. On other
processors only integers up to 2**53 are read the quick way.

All arrays of characters here are of shape (places, numbers): whole columns are added up, not single rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_BLANK, _DOT, _ZERO = (np.uint8(ord(c)) for c in " .0")
# As many digits always fit into 63 bits; they are added up in three groups of eight.
_DIGITS = 18
_PLACES = 24
# Powers of ten that are exact: 5**22 has 52 bits, 5**27 has 63.
_POWERS = 10.0 ** np.arange(23)
_LONG_POWERS = np.cumprod(np.r_[1, np.full(27, 10)], dtype=np.longdouble)
_IS_X86 = np.finfo(np.longdouble).nmant == 63 and np.little_endian
# The 11 of the 64 bits that float64 has no room for.
_BEYOND, _HALF = np.uint64(0x7FF), np.uint64(0x400)


def decimals(columns: Bytes) -> Floats:
    """Numbers aligned to the right, with blanks before them.

    Raises:
        ValueError: there is something else.
    """
    digits = columns - _ZERO
    is_digit, is_dot = digits <= 9, columns == _DOT
    certain = _is_plain(columns, is_digit | is_dot) & is_digit[-1] & (is_dot.sum(0, dtype=np.uint8) == 1)
    # Places are counted from the right: the dot stands in the place `behind`, and the digits before it move up to it.
    places = np.arange(len(columns) - 1, -1, -1, dtype=np.uint8)[:, None]
    behind = (is_dot * places).sum(0, dtype=np.uint8)
    digits *= is_digit
    moves = -(places >= behind).view(np.uint8)  # all bits, or none
    moved = digits & ~moves
    moved[1:] |= digits[:-1] & moves[1:]
    certain &= (behind < (len(_LONG_POWERS) if _IS_X86 else len(_POWERS))) & ~moved[:-_DIGITS].any(0)
    result = _quotient(_added_up(moved), np.where(certain, behind, 0), certain)
    _read_one_by_one(columns, certain, result, float)
    return result


def integers(columns: Bytes) -> Ints:
    """As `decimals`. Integers beyond 64 bits are an error as well."""
    digits = columns - _ZERO
    is_digit = digits <= 9
    digits *= is_digit
    certain = _is_plain(columns, is_digit) & is_digit[-1] & ~digits[:-_DIGITS].any(0)
    result = _added_up(digits).astype(np.int64)
    try:
        _read_one_by_one(columns, certain, result, int)
    except OverflowError as error:
        raise ValueError(str(error)) from error
    return result


def _is_plain(columns: Bytes, is_of_number: Mask) -> Mask:
    """Blanks, and then nothing but these characters."""
    is_blank = columns == _BLANK
    return (is_of_number | is_blank).all(0) & ~(is_blank[1:] & ~is_blank[:-1]).any(0)


def _added_up(digits: Bytes) -> npt.NDArray[np.uint64]:
    """First two digits, then four, then eight, in the narrowest type that holds them."""
    ones = np.zeros((_PLACES, digits.shape[1]), np.uint8)
    used = digits[-_PLACES:]
    ones[_PLACES - len(used) :] = used
    twos = ones[0::2] * np.uint8(10) + ones[1::2]
    fours = twos[0::2] * np.uint16(100) + twos[1::2]
    eights = fours[0::2] * np.uint32(10**4) + fours[1::2]
    high, middle, low = eights.astype(np.uint64)
    return (high * np.uint64(10**8) + middle) * np.uint64(10**8) + low


def _quotient(whole: npt.NDArray[np.uint64], power: npt.NDArray[np.uint8], certain: Mask) -> Floats:
    """whole / 10**power. Clears `certain` where the rounding is not."""
    if not _IS_X86 or (power.max(initial=0) < len(_POWERS) and whole.max(initial=0) <= 2**53):
        certain &= whole <= 2**53
        return whole / _POWERS[power]
    quotient: Any = whole.astype(np.longdouble) / _LONG_POWERS[power]
    # An 80-bit number takes 16 bytes, of which the first 8 are its digits.
    certain &= (quotient.view(np.uint64)[::2] & _BEYOND) != _HALF
    return quotient.astype(np.float64)


def _read_one_by_one(columns: Bytes, certain: Mask, result: Any, read: type[float] | type[int]) -> None:
    """What is left: nan, signs, exponents, twenty digits."""
    known: dict[bytes, Any] = {}
    for i in np.flatnonzero(~certain).tolist():
        text = columns[:, i].tobytes()
        if text not in known:
            known[text] = read(text)
        result[i] = known[text]
