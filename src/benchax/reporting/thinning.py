"""Leaves out what cannot be seen: of very many readings a chart shows some, and says how many."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from benchax.units import plural


def thin(values: Sequence[float], most: int) -> list[int]:
    """The places of at most `most` of them, in order: the least and the greatest of each group of neighbours, so that
    no outlier gets lost. All where they are no more than that."""
    if len(values) <= most:
        return list(range(len(values)))
    groups = max(1, most // 2)
    edges = [len(values) * i // groups for i in range(groups + 1)]
    chosen: set[int] = set()
    for first, end in pairwise(edges):
        group = range(first, end)
        chosen |= {min(group, key=values.__getitem__), max(group, key=values.__getitem__)}
    return sorted(chosen)


def describe_thinning(shown: int, n: int, what: str) -> str:
    """400 of 1000000 readings are drawn: the least and the greatest of each group of neighbours"""
    return f"{shown} of {plural(n, what)} are drawn: the least and the greatest of each group of neighbours"
