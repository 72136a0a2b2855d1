"""Groups the rows of a few columns of whole numbers, a million at a time.

`np.unique(axis=0)` compares rows as bytes: 3 s for a million of three columns. Columns of a trace have few different
values, mostly indices into a table, which can be counted instead of sorted.
"""

from __future__ import annotations

import numpy as np

from benchax.protobuf import Ints

SPARE = 4
"""A table may be so many times as long as the column; values that lie further apart are sorted."""


def group_rows(*columns: Ints) -> tuple[Ints, Ints]:
    """(the first row of each group, the group of each row); groups are in the order of their values."""
    group = number_rows(*columns)
    first = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]  # of several writes the last one stays
    return first, group


def number_rows(*columns: Ints) -> Ints:
    """One number for each different row, from 0 up, in the order of the values."""
    whole = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes, count = _number(column)
        # Numbered anew after each column, so that the products of many columns stay inside an int64.
        whole, _ = _number(whole * count + codes)
    return whole


def _number(column: Ints) -> tuple[Ints, int]:
    """(the rank of each value among the different ones, how many these are)."""
    if not len(column):
        return column.astype(np.int64), 0
    low, high = int(column.min()), int(column.max())
    if high - low >= SPARE * len(column):
        values, codes = np.unique(column, return_inverse=True)
        return codes.astype(np.int64), len(values)
    is_there = np.zeros(high - low + 1, np.bool_)
    is_there[column - low] = True
    rank = np.cumsum(is_there) - 1
    return rank[column - low], int(rank[-1]) + 1
