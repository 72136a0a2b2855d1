"""A compiled program as a picture, and whether it is the program of the last picture.

Reads the text that `compiled.as_text()` gives; no JAX, no private interface, no system program. The comparison is of
programs and never of pictures. An additional or missing operation, shape, constant or attribute is a difference.
Another name or source line is not a difference (`hlo.normalize`). Each picture holds the digest of its program, so that
the next run can see whether the picture is out of date.

`dataflow` turns text into boxes and arrows. This module finds their places and writes SVG: self-contained, without
script, web font or anything to fetch. Text is in a monospace font, whichever the viewer has. Only with such a
font is the width of a text known without knowing the font. Colors show the kind of work of a box, and the legend lists
the colors. The titles show the same, for readers who do not see the difference. Hovering over a box shows its details.

An arrow over more than `FAR` layers of a large program is not drawn, because it could not be followed. Its end shows
the number of the box that it comes from.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import count as counter
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from benchax.grouping import group_by, reach
from benchax.printable import spell_for_xml
from benchax.program import hlo
from benchax.program.graph import dataflow
from benchax.program.graph.dataflow import Box, Dataflow, ProgramDrawing, Role
from benchax.program.hlo import digest as digest

LIMIT = 2000
"""Boxes in one picture."""

FAR, SMALL = 8, 60
"""Layers; boxes up to which a computation shows every arrow."""

_ROLES: dict[Role, tuple[str, str, str]] = {  # in the legend, fill, stroke
    "parameter": ("input", "#e4ecf7", "#5b7aa8"),
    "constant": ("constant", "#f4f0e2", "#9a8c5c"),
    "matmul": ("matrix product, convolution", "#ffd9c2", "#c8541a"),
    "reduction": ("reduction, sort", "#e6d8f5", "#7b4bb3"),
    "elementwise": ("element by element", "#d5efd9", "#3a8a4a"),
    "movement": ("moves data only", "#ebebeb", "#7d7d7d"),
    "communication": ("between devices", "#ffd6e4", "#b83268"),
    "library": ("library call", "#fff0b8", "#a88600"),
    "control": ("loop, branch, call", "#fafafa", "#444444"),
    "output": ("output", "#d3e3ff", "#1f5fbf"),
}
# Widths in em of the widest common monospace fonts: 0.602 (DejaVu Sans Mono, Menlo, Liberation Mono).
_HEADING_SIZE, _TITLE_SIZE, _LINE_SIZE, _EM = 15.0, 12.0, 10.0, 0.605
_TITLE_STEP, _LINE_STEP = 15.0, 12.5
_PADDING, _MARGIN, _PART_GAP, _LEGEND_STEP = 8.0, 20.0, 16.0, 18.0
_LEAST_WIDTH = 640.0
_MOST_REFERENCES = 12
_ARROWHEAD = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 .8L8 4L0 7.2Z" fill="#68707c"/></marker></defs>'
)
_ALSO_FROM = "also from "
_ABOUT_FAR = f"an arrow over more than {FAR} layers is a number: “also from” the box with that number"
_STYLE = (
    "text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;fill:#1b1b1b}"
    f".t{{font-size:{_TITLE_SIZE:g}px;font-weight:bold}}.l{{font-size:{_LINE_SIZE:g}px}}"
    f".h{{font-size:{_HEADING_SIZE:g}px;font-weight:bold}}.f{{font-size:{_LINE_SIZE:g}px;fill:#5a5a5a}}"
    ".e{fill:none;stroke:#68707c;stroke-width:1.1}.p{fill:#fff;stroke:#999;stroke-dasharray:4 3}"
)
_KEPT = re.compile(r"<metadata>benchax graph (\S+)</metadata>")


def svg(hlo_text: str, *, title: str = "", stablehlo: str = "", limit: int = LIMIT) -> str:
    """Draws the optimised program as a self-contained SVG document.

    Args:
        hlo_text: `compiled.as_text()`.
        title: the heading, before the counts; the name of the module by default.
        stablehlo: `lowered.as_text()`: brings the values of large constants into the digest, see `hlo.normalize`.
        limit: maximum number of boxes; the picture states how many it omits.
    """
    module = hlo.parse(hlo_text)
    program = ProgramDrawing(module, limit)
    title, about = title or module.name or "compiled program", _about(program)
    drawn = _flow(program.flow)
    if any(_ALSO_FROM in piece for piece in drawn.pieces):
        about.append(_ABOUT_FAR)
    roles = Counter(_all_roles(program.flow))
    widths = [_width(title, _HEADING_SIZE), *(_width(line, _LINE_SIZE) for line in about), _LEAST_WIDTH, drawn.width]
    width = max(widths) + 2 * _MARGIN
    head = [_text(_MARGIN, _MARGIN + 12, "h", title)]
    head += [_text(_MARGIN, _MARGIN + 30 + 14 * n, "f", line) for n, line in enumerate(about)]
    legend_at = _MARGIN + 28 + 14 * len(about)
    legend, legend_height = _legend(roles, width - 2 * _MARGIN)
    top = legend_at + legend_height + 8
    body = [*head, *_move(_MARGIN, legend_at, legend), *_move((width - drawn.width) / 2, top, drawn.pieces)]
    metadata = f"benchax graph {digest(module, stablehlo=stablehlo)}"
    return _document(width, top + drawn.height + _MARGIN, title, metadata, f"{_STYLE}{_role_styles(roles)}", body)


def read_digest(svg_text: str) -> str | None:
    """The `digest` of the program that a picture shows; None where it is not one of ours."""
    kept = _KEPT.search(svg_text)
    return kept[1] if kept else None


def _about(program: ProgramDrawing) -> list[str]:
    counts = (
        f"{program.instructions} instructions in {len(program.module.computations)} computations, {program.drawn} boxes"
    )
    sentences = [f"{counts}; tuples and scalar constants are not drawn as boxes"]
    if not program.instructions:
        sentences = ["no program to draw: the text has no instruction that can be read"]
    if program.left_out:
        sentences.append(f"cut after {program.drawn} boxes: at least {program.left_out} more are not drawn")
    return sentences


def _document(width: float, height: float, title: str, metadata: str, style: str, body: Sequence[str]) -> str:
    size = f'width="{_n(width)}" height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}"'
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{_escape(title)}</title>",
        f"<metadata>{_escape(metadata)}</metadata>",
        f"<style>{style}</style>",
        _ARROWHEAD,
        '<rect width="100%" height="100%" fill="#fff"/>',
        *body,
        "</svg>",
    ]
    return "\n".join(pieces) + "\n"


def _move(x: float, y: float, pieces: Iterable[str]) -> Iterator[str]:
    yield f'<g transform="translate({_n(x)} {_n(y)})">'
    yield from pieces
    yield "</g>"


@dataclass(frozen=True)
class _Fragment:
    width: float
    height: float
    pieces: tuple[str, ...]


def _flow(flow: Dataflow) -> _Fragment:
    layer_of, is_large = ranks(len(flow.boxes), flow.arrows), len(flow.boxes) > SMALL
    far = {(s, t) for s, t in flow.arrows if is_large and layer_of[t] - layer_of[s] > FAR}
    from_far, to_far = group_by(far, lambda arrow: arrow[1]), {source for source, _ in far}
    inner = [_inside(box, [flow.boxes[s].number for s, _ in from_far.get(n, ())]) for n, box in enumerate(flow.boxes)]
    near = [arrow for arrow in flow.arrows if arrow not in far]
    placed = place([(i.width, i.height) for i in inner], near, layer_of)
    pieces = [_path(line) for line in placed.lines]
    for n, (box, drawn, corner) in enumerate(zip(flow.boxes, inner, placed.corners, strict=True)):
        pieces += _box(box, drawn, corner, is_referred=n in to_far)
    return _Fragment(placed.width, placed.height, tuple(pieces))


def _inside(box: Box, from_far: Sequence[int]) -> _Fragment:
    """The texts of a box and what it holds, from its upper left corner."""
    parts, lines = [(part.title, _flow(part)) for part in box.parts], (*box.lines, *_references(from_far))
    texts = [
        _width(box.title, _TITLE_SIZE) + _width(" 9999", _LINE_SIZE),
        *(_width(line, _LINE_SIZE) for line in lines),
    ]
    held = sum(p.width + 2 * _PADDING for _, p in parts) + _PART_GAP * max(len(parts) - 1, 0)
    width = max(*texts, held) + 2 * _PADDING
    pieces = [_text(width / 2, _PADDING + 10, "t", box.title, middle=True)]
    y = _PADDING + 10
    for line in lines:
        y += _LINE_STEP
        pieces.append(_text(width / 2, y, "l", line, middle=True))
    y += _PADDING
    if parts:
        pieces += _parts(parts, (width - held) / 2, y)
        y += max(p.height for _, p in parts) + _TITLE_STEP + 3 * _PADDING
    return _Fragment(width, y, tuple(pieces))


def _parts(parts: Sequence[tuple[str, _Fragment]], x: float, y: float) -> Iterator[str]:
    tallest = max(p.height for _, p in parts)
    for title, drawn in parts:
        width, height = drawn.width + 2 * _PADDING, tallest + _TITLE_STEP + 2 * _PADDING
        yield f'<rect class="p" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="4"/>'
        yield _text(x + _PADDING, y + 12, "f", title)
        yield from _move(x + _PADDING, y + _TITLE_STEP + _PADDING, drawn.pieces)
        x += width + _PART_GAP


def _references(numbers: Sequence[int]) -> list[str]:
    """`also from 12, 40`, in few lines."""
    told = sorted(numbers)[:_MOST_REFERENCES]
    more = [f"and {len(numbers) - len(told)} more"] if len(told) < len(numbers) else []
    return textwrap.wrap(f"{_ALSO_FROM}{', '.join(map(str, told))}", dataflow.LINE) + more if told else []


def _box(box: Box, drawn: _Fragment, corner: Point, *, is_referred: bool) -> Iterator[str]:
    yield f'<g transform="translate({_n(corner[0])} {_n(corner[1])})">'
    if box.details:
        yield f"<title>{_escape(box.details)}</title>"
    rounded = 12 if box.role in ("parameter", "output") else 3
    yield f'<rect class="{box.role}" width="{_n(drawn.width)}" height="{_n(drawn.height)}" rx="{rounded}"/>'
    yield from drawn.pieces
    if is_referred:
        yield f'<text x="{_n(drawn.width - 5)}" y="12" class="f" text-anchor="end">{box.number}</text>'
    yield "</g>"


def _path(line: Polyline) -> str:
    x, y = line.points[0]
    steps = [f"M{_n(x)} {_n(y)}"]
    for to_x, to_y in line.points[1:]:
        half = _n((y + to_y) / 2)
        if abs(y - to_y) < 0.5:
            continue
        if abs(x - to_x) < 0.05:
            steps.append(f"V{_n(to_y)}")
        else:
            steps.append(f"C{_n(x)} {half} {_n(to_x)} {half} {_n(to_x)} {_n(to_y)}")
        x, y = to_x, to_y
    head = ' marker-end="url(#a)"' if line.reaches_box else ""
    return f'<path class="e" d="{"".join(steps)}"{head}/>'


def _all_roles(flow: Dataflow) -> Iterator[Role]:
    for box in flow.boxes:
        yield box.role
        for part in box.parts:
            yield from _all_roles(part)


def _role_styles(roles: Counter[Role]) -> str:
    return "".join(
        f".{role}{{fill:{fill};stroke:{stroke};stroke-width:{2 if role == 'output' else 1.2:g}}}"
        for role, (_, fill, stroke) in _ROLES.items()
        if role in roles
    )


def _legend(roles: Counter[Role], width: float) -> tuple[list[str], float]:
    """One swatch for each kind that occurs, with the number of its boxes."""
    pieces: list[str] = []
    x, y = 0.0, 0.0
    for role, (meaning, _, _) in _ROLES.items():
        if not roles[role]:
            continue
        words = f"{meaning} ({roles[role]})"
        needed = 18 + _width(words, _LINE_SIZE) + 16
        if x and x + needed > width:
            x, y = 0.0, y + _LEGEND_STEP
        pieces.append(f'<rect class="{role}" x="{_n(x)}" y="{_n(y)}" width="13" height="11" rx="2"/>')
        pieces.append(_text(x + 18, y + 9, "l", words))
        x += needed
    return pieces, y + _LEGEND_STEP


def _width(text: str, size: float) -> float:
    """In pixels; East Asian characters take two places."""
    return size * _EM * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _text(x: float, y: float, style: str, text: str, *, middle: bool = False) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{_n(x)}" y="{_n(y)}" class="{style}"{anchor}>{_escape(text)}</text>'


def _escape(text: str) -> str:
    """Characters that XML does not know at all are spelled out."""
    return escape(spell_for_xml(text))


def _n(value: float) -> str:
    """A tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")


# ---- places for boxes of given sizes, so that arrows run from top to bottom: a layered drawing ------------------
#
# The four steps of Sugiyama, Tagawa and Toda (1981):
#
#     layers      each box below all that it reads from, and inputs as far down as their first reader allows
#     lanes       an arrow over several layers gets a place in each of them; arrows from one box share their lane
#     order       in each layer by the median of the neighbours, swept down and up; the one with fewest crossings stays
#     places      the shortest lines, as a linear program
#
# A picture needs neither a system program (graphviz) nor another package. The package grandalf takes five times as
# long, igraph and fast-sugiyama know no boxes of different sizes, and none lets arrows share a lane. 1000 boxes take
# 0.2 s (2 cores of an AMD EPYC).


Arrow = tuple[int, int]
Point = tuple[float, float]
Layers = list[list[int]]

COLUMN_GAP, ROW_GAP, LANE_WIDTH = 18.0, 26.0, 10.0
_SWEEPS = 8
_WEIGHTS = (1.0, 2.0, 8.0)
"""The cost of a pixel to the side, for a line between two boxes, between a box and a lane, and between two lanes."""
_WIDTH_WEIGHT = 3.0
"""The cost of a pixel of the drawing's width."""


class Polyline(NamedTuple):
    """Down through `points`; ends at a box, or at the lower end of a lane."""

    points: tuple[Point, ...]
    reaches_box: bool


class Placed(NamedTuple):
    """`corners`: of each box, upper left, in the order of the sizes."""

    width: float
    height: float
    corners: tuple[Point, ...]
    lines: tuple[Polyline, ...]


@dataclass
class Lanes:
    """The boxes and, numbered after them, the places that arrows take in layers on their way."""

    boxes: int
    layers: Layers
    below: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    above: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def is_lane(self, node: int) -> bool:
        return node >= self.boxes

    def connect(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)


def ranks(count: int, arrows: Sequence[Arrow]) -> list[int]:
    """The layer of each box, from 0. Boxes are in the order of the text, so arrows lead from earlier to later ones."""
    found = [0] * count
    for source, target in sorted(arrows):
        found[target] = max(found[target], found[source] + 1)
    readers = group_by(arrows, lambda arrow: arrow[0])
    for box in readers.keys() - {target for _, target in arrows}:
        found[box] = min(found[target] for _, target in readers[box]) - 1
    return found


def place(sizes: Sequence[tuple[float, float]], arrows: Sequence[Arrow], layer_of: Sequence[int]) -> Placed:
    """Args: sizes: (width, height) of each box. arrows: (from, to). layer_of: as from `ranks`."""
    if not sizes:
        return Placed(0.0, 0.0, (), ())
    lanes = _with_lanes(len(sizes), arrows, layer_of)
    _order(lanes)
    widths = [w for w, _ in sizes] + [LANE_WIDTH] * (sum(map(len, lanes.layers)) - len(sizes))
    centers = _centers(lanes, widths)
    rows = _rows(lanes, sizes)
    middles = [sum(rows[n]) / 2 for n in range(len(sizes))]
    corners = tuple((centers[n] - w / 2, middles[n] - h / 2) for n, (w, h) in enumerate(sizes))
    width = max(c + w / 2 for c, w in zip(centers, widths, strict=True))
    height = max(bottom for _, bottom in rows.values())
    return Placed(width, height, corners, tuple(_lines(lanes, list(zip(corners, sizes, strict=True)), centers, rows)))


def _with_lanes(count: int, arrows: Sequence[Arrow], layer_of: Sequence[int]) -> Lanes:
    lanes, numbers = Lanes(count, [[] for _ in range(max(layer_of) + 1)]), counter(count)
    for box in range(count):
        lanes.layers[layer_of[box]].append(box)
    ends: dict[int, tuple[int, int]] = {}
    """The lowest node in the lane of each box, and its layer."""
    for source, target in sorted(arrows, key=lambda arrow: layer_of[arrow[1]]):
        at, layer = ends.get(source, (source, layer_of[source]))
        while layer < layer_of[target] - 1:
            lane, layer = next(numbers), layer + 1
            lanes.layers[layer].append(lane)
            lanes.connect(at, lane)
            at = lane
        lanes.connect(at, target)
        ends[source] = at, layer
    return lanes


def _order(lanes: Lanes) -> None:
    """Sorts each layer in place."""
    # Depth first from the last layer upwards, so that what belongs together starts side by side.
    lowest_last = [n for layer in lanes.layers for n in reversed(layer)]
    seen = {n: i for i, n in enumerate(reach(lowest_last, lambda n: lanes.above[n][::-1]))}
    for layer in lanes.layers:
        layer.sort(key=lambda n: seen[n])
    tried: list[Layers] = []
    for sweep in range(_SWEEPS):
        tried.append([list(layer) for layer in lanes.layers])
        layers, neighbors = (lanes.layers[::-1], lanes.below) if sweep % 2 else (lanes.layers, lanes.above)
        for fixed, layer in pairwise(layers):
            _sort(layer, {n: i for i, n in enumerate(fixed)}, neighbors)
    lanes.layers[:] = min(
        tried, key=lambda layers: sum(crossings(upper, lower, lanes.below) for upper, lower in pairwise(layers))
    )


def _sort(layer: list[int], places: Mapping[int, int], neighbors: Mapping[int, list[int]]) -> None:
    """Moves each node to the median of its neighbors."""
    now = {n: i for i, n in enumerate(layer)}
    layer.sort(key=lambda n: (median([places[m] for m in neighbors[n]] or [now[n]]), now[n]))


def crossings(upper: Sequence[int], lower: Sequence[int], below: Mapping[int, Sequence[int]]) -> int:
    """Pairs of arrows that start in one order and end in the other."""
    at = {n: i for i, n in enumerate(lower)}
    ends: list[int] = []
    count = 0
    for node in upper:
        targets = sorted(at[m] for m in below[node])
        count += sum(len(ends) - bisect_right(ends, t) for t in targets)
        for t in targets:
            insort(ends, t)
    return count


def _centers(lanes: Lanes, widths: Sequence[float]) -> list[float]:
    """The center of each node. Lines run as straight down as the widths allow, those between two lanes before others.

    It minimizes the weighted distances that lines run to the side (Gansner, Koutsofios, North and Vo, A Technique for
    Drawing Directed Graphs, IEEE TSE 19, 1993, section 4.2), and the width of the
    drawing.
    """
    # Here, because SciPy takes 0.2 s to import, and only drawing needs it.
    from scipy.optimize import linprog  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]
    from scipy.sparse import coo_array  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    arrows = [(upper, lower) for upper, lowers in lanes.below.items() for lower in lowers]
    # The unknowns are the centers, the distance that each line runs to the side, and the width of the drawing.
    sides = [_WEIGHTS[lanes.is_lane(upper) + lanes.is_lane(lower)] for upper, lower in arrows]
    costs = [*[0.0] * len(widths), *sides, _WIDTH_WEIGHT]
    bounds = [(width / 2, None) for width in widths] + [(0.0, None)] * (len(arrows) + 1)
    terms: list[tuple[list[tuple[int, float]], float]] = []  # (unknowns and factors, the limit of their sum)
    for layer in lanes.layers:
        for left, right in pairwise(layer):
            terms.append(([(left, 1.0), (right, -1.0)], -(widths[left] + widths[right]) / 2 - COLUMN_GAP))
        terms.append(([(layer[-1], 1.0), (len(costs) - 1, -1.0)], -widths[layer[-1]] / 2))
    for side, (upper, lower) in enumerate(arrows, len(widths)):
        terms += [([(upper, sign), (lower, -sign), (side, -1.0)], 0.0) for sign in (1.0, -1.0)]
    entries = [(row, unknown, factor) for row, (sums, _) in enumerate(terms) for unknown, factor in sums]
    rows, columns, factors = zip(*entries, strict=True)
    matrix = coo_array((factors, (rows, columns)), shape=(len(terms), len(costs)))
    limits = [limit for _, limit in terms]
    found = linprog(costs, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs-ds")
    return [round(float(x), 6) for x in found.x[: len(widths)]]


def _rows(lanes: Lanes, sizes: Sequence[tuple[float, float]]) -> dict[int, tuple[float, float]]:
    """Upper and lower edge of the layer of each node. Many arrows between two layers move them apart."""
    rows: dict[int, tuple[float, float]] = {}
    y = 0.0
    for layer in lanes.layers:
        bottom = y + max((sizes[n][1] for n in layer if not lanes.is_lane(n)), default=0.0)
        rows |= dict.fromkeys(layer, (y, bottom))
        y = bottom + ROW_GAP + min(2.0 * sum(len(lanes.below[n]) for n in layer), 2 * ROW_GAP)
    return rows


def _lines(
    lanes: Lanes,
    boxes: Sequence[tuple[Point, tuple[float, float]]],
    centers: Sequence[float],
    rows: Mapping[int, tuple[float, float]],
) -> Iterator[Polyline]:
    """Yields a line from each node to each node below it. `boxes`: (corner, size)."""
    for lower in rows:
        is_box, uppers = not lanes.is_lane(lower), sorted(lanes.above[lower], key=lambda n: centers[n])
        ends = _ends([centers[n] for n in uppers], centers[lower], boxes[lower][1][0]) if is_box else [centers[lower]]
        for x, upper in zip(ends, uppers, strict=True):
            start = rows[upper][1] if lanes.is_lane(upper) else boxes[upper][0][1] + boxes[upper][1][1]
            end = boxes[lower][0][1] if is_box else rows[lower][1]
            points = (centers[upper], start), (centers[upper], rows[upper][1]), (x, rows[lower][0]), (x, end)
            yield Polyline(points, is_box)


def _ends(starts: Sequence[float], center: float, width: float) -> list[float]:
    """Returns where each line ends on the upper edge of its box: the straightest in the middle, the others on its
    sides."""
    straight = min(range(len(starts)), key=lambda n: abs(starts[n] - center), default=0)
    step = min(0.4 * width / max(len(starts) - 1, 1), 24.0)
    return [center + (n - straight) * step for n in range(len(starts))]
