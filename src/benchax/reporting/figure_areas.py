"""Draws trees with matplotlib: areas inside one another, each as large as its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchax.reporting.chart import Branch, Chart, Tree, describe_value
from benchax.reporting.figure_cells import need

Box = tuple[float, float, float, float]
"""Left, bottom, width, height; shares of the figure."""
FILLS = ("#cfe3f5", "#d7ecd9", "#f6e3c5", "#e6daf0", "#f5d5d0", "#dfe4ea")
LEVELS = 3
LEAST_AREA = 0.004
"""Smaller ones have no name, and their parts are not drawn."""
HEAD, GAP = 0.04, 0.004
"""The room of the name of what has parts, and between areas."""


def draw_tree(axes: Any, chart: Chart, tree: Tree) -> None:
    axes.set_title(chart.title, fontsize=9.5, loc="left", parse_math=False)
    axes.set_axis_off()
    for i, (branch, box) in enumerate(arrange(tree.roots, (0.0, 0.0, 1.0, 1.0))):
        # A single root has the whole figure: its parts are told apart.
        is_whole = len(tree.roots) == 1
        _draw_branch(axes, branch, box, tree, "#ffffff" if is_whole else FILLS[i % len(FILLS)], 1, is_whole)


def _draw_branch(axes: Any, branch: Branch, box: Box, tree: Tree, fill: str, level: int, is_whole: bool) -> None:
    left, bottom, width, height = box
    axes.add_patch(need("patches").Rectangle((left, bottom), width, height, facecolor=fill, edgecolor="white", lw=1))
    if width * height < LEAST_AREA:
        return
    parts = branch.parts if level < LEVELS and height > 2 * HEAD and width > 4 * GAP else ()
    text = f"{branch.name}  {describe_value(branch.value, tree.quantity)}"
    room = int(width * 110)
    axes.text(
        left + GAP, bottom + height - GAP, text if len(text) <= room else text[: max(0, room - 1)] + "…",
        fontsize=7, va="top", clip_on=True, parse_math=False,
    )  # fmt: skip
    inner = (left + GAP, bottom + GAP, width - 2 * GAP, height - HEAD - GAP)
    for i, (part, area) in enumerate(arrange(parts, inner, branch.value)):
        _draw_branch(axes, part, area, tree, FILLS[i % len(FILLS)] if is_whole else fill, level + 1, False)


def arrange(branches: Sequence[Branch], box: Box, whole: float | None = None) -> list[tuple[Branch, Box]]:
    """Cuts a box into areas by value, always across its longer side, into halves of about equal sums.

    Args:
        whole: the value of the box; what its parts leave of it stays empty. None: they fill it.
    """
    listed = sorted((b for b in branches if b.value > 0), key=lambda b: -b.value)
    total = sum(b.value for b in listed)
    left, bottom, width, height = box
    share = min(1.0, total / whole) if whole else 1.0
    if width >= height:
        return _halve(listed, (left, bottom, width * share, height))
    return _halve(listed, (left, bottom + height * (1 - share), width, height * share))


def _halve(listed: Sequence[Branch], box: Box) -> list[tuple[Branch, Box]]:
    if len(listed) <= 1:
        return [(branch, box) for branch in listed]
    total, first, count = sum(b.value for b in listed), listed[0].value, 1
    while count < len(listed) - 1 and first + listed[count].value <= total / 2:
        first, count = first + listed[count].value, count + 1
    left, bottom, width, height = box
    part = first / total
    if width >= height:
        boxes = (left, bottom, width * part, height), (left + width * part, bottom, width * (1 - part), height)
    else:
        boxes = (left, bottom + height * (1 - part), width, height * part), (left, bottom, width, height * (1 - part))
    return _halve(listed[:count], boxes[0]) + _halve(listed[count:], boxes[1])
