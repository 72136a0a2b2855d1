"""Horizontal places for the ordered layers of a drawing: long lines straight, neighbours near, nothing overlapping.

Brandes and Köpf, Fast and Simple Horizontal Coordinate Assignment (Graph Drawing 2001). Each node is aligned with the
median of its neighbours, in four ways (from above and from below, from the left and from the right). The two middle
results of the four are averaged. Widths are respected as in their section 3 on variable node sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

Neighbours = dict[int, list[int]]


def assign(
    layers: Sequence[Sequence[int]],
    above: Neighbours,
    below: Neighbours,
    widths: Sequence[float],
    gap: float,
    is_lane: Callable[[int], bool],
) -> list[float]:
    """The centre of each node.

    Args:
        layers: nodes from left to right, layers from top to bottom.
        above: of each node its neighbours in the layer above; `below` likewise.
        widths: by node.
        gap: free space between two nodes of a layer.
        is_lane: the node is a place of a line, so that a line through two of them should be straight.
    """
    crossed = _lines_that_give_way(layers, above, is_lane)
    results: list[list[float]] = []
    for from_below in (False, True):
        for from_right in (False, True):
            rows = [list(reversed(r)) if from_right else list(r) for r in (reversed(layers) if from_below else layers)]
            blocks = _align(rows, below if from_below else above, crossed)
            xs = _compact(rows, blocks, widths, gap)
            results.append([-x for x in xs] if from_right else xs)
    return _balance(results, widths)


def _lines_that_give_way(
    layers: Sequence[Sequence[int]], above: Neighbours, is_lane: Callable[[int], bool]
) -> set[tuple[int, int]]:
    """(upper, lower) of each line that crosses a piece between two lanes: the piece stays straight (type 1)."""
    found: set[tuple[int, int]] = set()
    for upper, lower in pairwise(layers):
        at = {n: i for i, n in enumerate(upper)}
        low, scanned = 0, 0
        for i, node in enumerate(lower):
            inner = next((m for m in above[node] if is_lane(m)), None) if is_lane(node) else None
            if inner is None and i < len(lower) - 1:
                continue
            high = len(upper) - 1 if inner is None else at[inner]
            for other in lower[scanned : i + 1]:
                for m in above[other]:
                    if not low <= at[m] <= high and not (is_lane(other) and is_lane(m)):
                        found.add((m, other))
            low, scanned = high, i + 1
    return found


def _align(
    rows: Sequence[Sequence[int]], neighbours: Neighbours, crossed: set[tuple[int, int]]
) -> tuple[dict[int, int], dict[int, int]]:
    """(top of the block of each node, the next node in its block, in a circle)."""
    top = {n: n for row in rows for n in row}
    following = dict(top)
    for before, row in pairwise(rows):
        at = {n: i for i, n in enumerate(before)}
        reached = -1
        for node in row:
            near = sorted((m for m in neighbours[node] if m in at), key=lambda m: at[m])
            for m in near[(len(near) - 1) // 2 : len(near) // 2 + 1]:
                gives_way = (m, node) in crossed or (node, m) in crossed
                if following[node] == node and at[m] > reached and not gives_way:
                    following[m] = node
                    top[node] = top[m]
                    following[node] = top[node]
                    reached = at[m]
    return top, following


def _compact(
    rows: Sequence[Sequence[int]],
    blocks: tuple[dict[int, int], dict[int, int]],
    widths: Sequence[float],
    gap: float,
) -> list[float]:
    """Blocks as far left as they can go, then each back to the right where it is free to: towards its neighbours."""
    top, _ = blocks
    apart: dict[int, dict[int, float]] = {t: {} for t in top.values()}
    for row in rows:
        for left, right in pairwise(row):
            distance = (widths[left] + widths[right]) / 2 + gap
            found = apart[top[left]]
            found[top[right]] = max(distance, found.get(top[right], 0.0))
    order = _left_to_right(apart)
    x = dict.fromkeys(order, 0.0)
    for block in order:
        for right, distance in apart[block].items():
            x[right] = max(x[right], x[block] + distance)
    for block in reversed(order):
        room = min((x[right] - distance for right, distance in apart[block].items()), default=x[block])
        x[block] = max(x[block], room)
    return [x[top[n]] for n in range(len(top))]


def _left_to_right(apart: dict[int, dict[int, float]]) -> list[int]:
    waiting = dict.fromkeys(apart, 0)
    for rights in apart.values():
        for right in rights:
            waiting[right] += 1
    ready = [block for block, count in waiting.items() if not count]
    for block in ready:
        for right in apart[block]:
            waiting[right] -= 1
            if not waiting[right]:
                ready.append(right)
    return ready


def _balance(results: Sequence[list[float]], widths: Sequence[float]) -> list[float]:
    """The mean of the two middle places, after all four are moved to the edges of the narrowest."""

    def edges(xs: Sequence[float]) -> tuple[float, float]:
        return min(x - w / 2 for x, w in zip(xs, widths, strict=True)), max(
            x + w / 2 for x, w in zip(xs, widths, strict=True)
        )

    spans = [edges(xs) for xs in results]
    narrow = min(spans, key=lambda span: span[1] - span[0])
    moved = [
        [x + (narrow[1] - high if i % 2 else narrow[0] - low) for x in xs]
        for i, (xs, (low, high)) in enumerate(zip(results, spans, strict=True))
    ]
    return [sum(sorted(places)[1:3]) / 2 for places in zip(*moved, strict=True)]
