"""A compiled program as a picture, and whether it is the program of the last picture.

Reads the text that `compiled.as_text()` gives; no JAX, no private interface, no system program. The comparison is of
programs and never of pictures. An additional or missing operation, shape, constant or attribute is a difference.
Another name or source line is not a difference (`normalized.py`). Each picture holds the digest of its program, so that
the next run can see whether the picture is out of date.

`dataflow` turns text into boxes and arrows, `layered` finds their places, and this module writes SVG: self-contained,
without script, web font or anything to fetch. Text is in a monospace font, whichever the viewer has. Only with such a
font is the width of a text known without knowing the font. Colors show the kind of work of a box, and the legend lists
the colors. The titles show the same, for readers who do not see the difference. Hovering over a box shows its details.

An arrow over more than `FAR` layers of a large program is not drawn, because it could not be followed. Its end shows
the number of the box that it comes from, with a link.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from benchax.program import hlo
from benchax.program.graph import dataflow, layered
from benchax.program.graph.dataflow import Box, Dataflow, Role
from benchax.program.graph.layered import Point, Polyline
from benchax.program.normalized import digest as digest

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
_LINK = '<a href="#b'
_ABOUT_FAR = f"an arrow over more than {FAR} layers is a number: “also from” the box with that number"
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLE = (
    "text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;fill:#1b1b1b}"
    f".t{{font-size:{_TITLE_SIZE:g}px;font-weight:bold}}.l{{font-size:{_LINE_SIZE:g}px}}"
    f".h{{font-size:{_HEADING_SIZE:g}px;font-weight:bold}}.f{{font-size:{_LINE_SIZE:g}px;fill:#5a5a5a}}"
    ".e{fill:none;stroke:#68707c;stroke-width:1.1}.p{fill:#fff;stroke:#999;stroke-dasharray:4 3}"
)
_KEPT = re.compile(r"<metadata>benchax graph (\S+)</metadata>")


def svg(
    hlo_text: str, *, title: str = "", stablehlo: str = "", expand_fusions: bool = False, limit: int = LIMIT
) -> str:
    """Draws the optimised program as a self-contained SVG document.

    Args:
        hlo_text: `compiled.as_text()`.
        title: the heading, before the counts; the name of the module by default.
        stablehlo: `lowered.as_text()`: brings the values of large constants into the digest, see `normalized.py`.
        expand_fusions: draws the operations inside each fusion.
        limit: maximum number of boxes; the picture states how many it omits.
    """
    module = hlo.parse(hlo_text)
    program = dataflow.program(module, expand_fusions=expand_fusions, limit=limit)
    title, about = title or _module_name(hlo_text), _about(program)
    drawn = _flow(program.flow)
    if any(_LINK in piece for piece in drawn.pieces):
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


def _module_name(hlo_text: str) -> str:
    named = re.match(r"HloModule ([\w.\-]+)", hlo_text)
    return named[1] if named else "compiled program"


def _about(program: dataflow.ProgramDrawing) -> list[str]:
    counts = f"{program.instructions} instructions in {program.computations} computations, {program.drawn} boxes"
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
    ranks = layered.ranks(len(flow.boxes), flow.arrows)
    far = _far(flow, ranks)
    referred = {source for source, _ in far}
    from_far: dict[int, list[int]] = {}
    for source, target in far:
        from_far.setdefault(target, []).append(flow.boxes[source].number)
    inner = [_inside(box, from_far.get(n, [])) for n, box in enumerate(flow.boxes)]
    near = [a for a in flow.arrows if a not in far]
    placed = layered.place([(i.width, i.height) for i in inner], near, ranks)
    pieces = [_path(line) for line in placed.lines]
    for n, (box, drawn, corner) in enumerate(zip(flow.boxes, inner, placed.corners, strict=True)):
        pieces += _box(box, drawn, corner, is_referred=n in referred)
    return _Fragment(placed.width, placed.height, tuple(pieces))


def _far(flow: Dataflow, ranks: Sequence[int]) -> set[tuple[int, int]]:
    if len(flow.boxes) <= SMALL:
        return set()
    return {(s, t) for s, t in flow.arrows if ranks[t] - ranks[s] > FAR}


def _inside(box: Box, from_far: Sequence[int]) -> _Fragment:
    """The texts of a box and what it holds, from its upper left corner."""
    parts = [(part.title, _flow(part.flow)) for part in box.parts]
    references = _references(from_far)
    texts = [_width(box.title, _TITLE_SIZE) + _width(" 9999", _LINE_SIZE)]
    texts += [_width(line, _LINE_SIZE) for line in (*box.lines, *(" ".join(r) for r in references))]
    held = sum(p.width + 2 * _PADDING for _, p in parts) + _PART_GAP * max(len(parts) - 1, 0)
    width = max(*texts, held) + 2 * _PADDING
    pieces = [_text(width / 2, _PADDING + 10, "t", box.title, middle=True)]
    y = _PADDING + 10
    for line in box.lines:
        y += _LINE_STEP
        pieces.append(_text(width / 2, y, "l", line, middle=True))
    for reference in references:
        y += _LINE_STEP
        pieces.append(_reference(width / 2, y, reference))
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


def _references(numbers: Sequence[int]) -> list[list[str]]:
    """`also from 12, 40`, four numbers in a line, and not more lines than a reader reads."""
    ordered = sorted(numbers)
    told = ordered[:_MOST_REFERENCES]
    rows = [["", *(f"{n}," for n in told[i : i + 4])] for i in range(0, len(told), 4)]
    if rows:
        rows[0][0] = "also from "
        rows[-1][-1] = rows[-1][-1].removesuffix(",")
    return rows + [[f"and {len(ordered) - len(told)} more"]] * (len(told) < len(ordered))


def _reference(x: float, y: float, words: Sequence[str]) -> str:
    links = " ".join(f'{_LINK}{word.rstrip(",")}"><tspan fill="#1f5fbf">{word}</tspan></a>' for word in words[1:])
    return f'<text x="{_n(x)}" y="{_n(y)}" class="l" text-anchor="middle">{words[0]}{links}</text>'


def _box(box: Box, drawn: _Fragment, corner: Point, *, is_referred: bool) -> Iterator[str]:
    name = f' id="b{box.number}"' if is_referred else ""
    yield f'<g{name} transform="translate({_n(corner[0])} {_n(corner[1])})">'
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
            yield from _all_roles(part.flow)


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
    """Characters that XML does not know at all are replaced."""
    return escape(_NOT_IN_XML.sub("\ufffd", text))


def _n(value: float) -> str:
    """A tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")
