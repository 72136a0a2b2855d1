"""Where boxes and lines go: nothing overlaps, arrows point down, what can be straight is."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.program import graph
from benchax.program.graph import Arrow, Placed

Sizes = list[tuple[float, float]]


@st.composite
def drawings(draw: st.DrawFn) -> tuple[Sizes, list[Arrow]]:
    count = draw(st.integers(1, 25))
    side = st.floats(5, 300)
    pair = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    arrows = {(min(p), max(p)) for p in draw(st.lists(pair, max_size=60)) if p[0] != p[1]}
    return [(draw(side), draw(side)) for _ in range(count)], sorted(arrows)


def placed(sizes: Sizes, arrows: list[Arrow]) -> Placed:
    return graph.place(sizes, arrows, graph.ranks(len(sizes), arrows))


@given(drawings())
def test_boxes_never_overlap_and_lines_run_down_beside_them(drawing: tuple[Sizes, list[Arrow]]) -> None:
    sizes, arrows = drawing
    layers, found = graph.ranks(len(sizes), arrows), placed(sizes, arrows)
    boxes = [(x, y, w, h) for (x, y), (w, h) in zip(found.corners, sizes, strict=True)]

    assert all(layers[s] < layers[t] for s, t in arrows)
    assert min(layers) >= 0
    for (x, y, w, h), (u, v, a, b) in combinations(boxes, 2):
        assert x + w <= u + 1e-6 or u + a <= x + 1e-6 or y + h <= v + 1e-6 or v + b <= y + 1e-6
    ends = [line.points[-1] for line in found.lines if line.reaches_box]
    assert len(ends) == len(arrows)
    for n, (x, y, w, h) in enumerate(boxes):
        assert -1e-6 <= x <= x + w <= found.width + 1e-6
        assert -1e-6 <= y <= y + h <= found.height + 1e-6
        # One end of a line on the upper edge of the reader for each arrow.
        here = [e for e in ends if abs(e[1] - y) < 1e-6 and x - 1e-6 <= e[0] <= x + w + 1e-6]
        assert len(here) == len({round(e[0], 3) for e in here}) == sum(t == n for _, t in arrows)
    for (x1, y1), (x2, y2) in (pair for line in found.lines for pair in pairwise(line.points)):
        assert y1 <= y2 + 1e-6
        for x, y, w, h in boxes:
            is_beside = max(x1, x2) <= x + 1e-6 or min(x1, x2) >= x + w - 1e-6
            assert is_beside or y1 + 1e-6 >= y + h or y2 - 1e-6 <= y


def test_an_input_is_drawn_above_its_first_reader() -> None:
    """0 → 1 → 2 → 3 and 4 → 3: 4 belongs beside 2, not at the top."""
    assert graph.ranks(5, [(0, 1), (1, 2), (2, 3), (4, 3)]) == [0, 1, 2, 3, 2]


def test_arrows_in_a_circle_do_not_hang() -> None:
    arrows = [(0, 1), (1, 2), (2, 1)]

    assert len(placed([(10.0, 10.0)] * 3, arrows).corners) == 3


def test_crossings_that_the_first_order_has_are_removed() -> None:
    arrows = [(1, 3), (1, 4), (1, 5), (2, 3), (3, 7), (4, 6), (4, 8)]
    found = graph.place([(50.0, 20.0)] * 9, arrows, [0, 0, 0, 1, 1, 1, 2, 2, 2])

    x = [corner[0] for corner in found.corners]

    pairs = [p for p in combinations(arrows, 2) if (p[0][0] < 3) == (p[1][0] < 3)]
    assert [((a, b), (c, d)) for (a, b), (c, d) in pairs if (x[a] - x[c]) * (x[b] - x[d]) < 0] == []


def test_arrows_from_one_box_share_their_way() -> None:
    """One value read in every layer below: one line down with branches, not one line for each reader."""
    chain = [(n, n + 1) for n in range(1, 20)]
    found = placed([(50.0, 20.0)] * 21, [*chain, *((0, n) for n in range(1, 21))])

    assert sum(len(line.points) for line in found.lines) < 250


def test_a_long_chain_with_bypasses_does_not_wander_off() -> None:
    """40 residual blocks, bypassed on the same side each: without care 800 wide."""
    arrows: list[Arrow] = []
    start, count = 0, 1
    for _ in range(40):
        first, second, weight, join, side = range(count, count + 5)
        arrows += [(start, first), (weight, first), (first, second), (second, side), (side, join)]
        arrows += [(second, join), (start, join)]
        start, count = join, count + 5
    found = placed([(100.0, 40.0)] * count, arrows)

    assert found.width < 400


def test_a_long_line_is_straight_beside_boxes_of_any_width() -> None:
    sizes = [(200.0, 20.0), (30.0, 20.0), (180.0, 20.0), (40.0, 20.0), (250.0, 20.0), (20.0, 20.0)]
    found = placed(sizes, [*((n, n + 1) for n in range(5)), (0, 5)])

    first, *others = [line for line in found.lines if not line.reaches_box]

    assert {x for line in others for x, _ in line.points} == {first.points[-1][0]}


def test_boxes_without_arrows_are_side_by_side() -> None:
    assert placed([(50.0, 20.0)] * 3, []).width == pytest.approx(3 * 50 + 2 * graph.COLUMN_GAP)
