"""Puts items into groups, and finds what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by their keys, in their order, whether or not equal keys are neighbours."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def reach(starts: Iterable[K], following: Callable[[K], Sequence[K]]) -> Iterator[K]:
    """These items and all that follow them, each once."""
    seen, waiting = set[K](), [*starts]
    while waiting:
        item = waiting.pop()
        if item not in seen:
            seen.add(item)
            yield item
            waiting += following(item)
