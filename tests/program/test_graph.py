"""The picture: well-formed whatever is in it, self-contained, of reasonable size, and it knows what it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from compiled_texts import hlo_text
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from benchax.program import graph
from benchax.program.graph import Arrow, Placed, dataflow
from benchax.program.graph.dataflow import Box, Dataflow, ProgramDrawing

HLO = Path(__file__).parents[1] / "golden" / "hlo"
GOLDEN = sorted(HLO.glob("*/*.txt"))
LOOP = (HLO / "jax-0.10.2" / "loop.txt").read_text()
SVG = "{http://www.w3.org/2000/svg}"

anything = st.text(st.characters() | st.sampled_from("<&>\"'"))  # lone surrogates and control characters too


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.encode())


def boxes(svg: str) -> list[str | None]:
    """What kind of box each is, those of the legend too."""
    return [box.get("class") for box in drawn(svg).iter(f"{SVG}rect")]


def words(svg: str) -> str:
    return "\n".join(t for t in drawn(svg).itertext() if t.strip())


def chain(operations: int, *, metadata: str = "") -> str:
    lines = [
        f"v{n} = f32[8,8]{{1,0}} {('dot', 'sine', 'sort')[n % 3]}(%v{n - 1}, %v{max(n - 5, 0)}){metadata}"
        for n in range(1, operations)
    ]
    first, last = f"v0 = f32[8,8]{{1,0}} parameter(0){metadata}", f"r = f32[8,8]{{1,0}} negate(%v{operations - 1})"
    return hlo_text(first, *lines, last)


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_program_is_drawn_whole(file: Path) -> None:
    text = file.read_text()
    svg = graph.svg(text, title="a title")
    count = ProgramDrawing(text).drawn

    root = drawn(svg)

    classes = [e.get("class", "") for e in root.iter(f"{SVG}rect")]
    legend = re.findall(r"\((\d+)\)", "\n".join(e.text or "" for e in root.findall(f"{SVG}g")[0]))
    assert sum(c not in ("", "p") for c in classes) == count + len(legend)
    assert sum(map(int, legend)) == count
    assert f"{count} boxes" in words(svg)
    places = " ".join(v for e in root.iter() for k, v in e.attrib.items() if k in ("x", "y", "width", "d", "transform"))
    assert not re.search(r"nan|inf|\d{6}", places)
    # Nothing is fetched, and nothing runs.
    assert re.findall(r"https?://[^\s\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|@import|@font-face|url\((?!#)|href=\"(?!#)|<image|<foreignObject| on\w+=", svg)


@given(title=anything, name=anything)
def test_any_title_and_any_name_of_an_argument_give_the_same_boxes(title: str, name: str) -> None:
    escaped = re.sub(r'[\\"]', r"\\\g<0>", name).replace("\n", r"\n")
    svg = graph.svg(chain(3, metadata=f', metadata={{op_name="{escaped}"}}'), title=title)

    assert boxes(svg) == boxes(graph.svg(chain(3)))


@given(st.text())
def test_any_text_instead_of_a_program_gives_a_picture_that_says_so(text: str) -> None:
    assert "no program to draw: the text has no instruction that can be read" in words(graph.svg(text))


def test_texts_arrive_as_they_are() -> None:
    metadata = r', metadata={op_name="params[\'a<b>&c\303\251\']"}'
    svg = graph.svg(chain(2, metadata=metadata), title='<script>alert("1")</script> & more')

    assert "params['a<b>&cé']" in words(svg)
    assert '<script>alert("1")</script> & more' in words(svg)
    assert "<script" not in svg


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 30, 300, 2000])
def test_a_picture_of_any_size_is_drawn_and_small(count: int) -> None:
    """300 operations in at most 500 kB; the predecessor needed 5.6 MB."""
    svg = graph.svg(chain(count), title="chain")

    root = drawn(svg)

    assert len(svg) <= 20_000 + 1_600 * count
    assert float(root.get("width", "0")) < 2000  # a chain is narrow
    assert "cut" not in words(svg) or count == 2000


def test_a_very_large_program_is_cut_with_a_sentence() -> None:
    svg = graph.svg(chain(5000), title="chain", limit=100)

    assert "cut after 100 boxes: at least 4901 more are not drawn" in words(svg)
    assert "5001 instructions" in words(svg)


def test_no_box_and_no_text_is_wider_than_its_box() -> None:
    """By the widths of the widest common monospace font."""
    svg = graph.svg((HLO / "jax-0.6.0" / "library.txt").read_text())
    sizes = {"t": 12.0, "l": 10.0}
    checked = 0

    for group in drawn(svg).iter(f"{SVG}g"):
        box = next((e for e in group if e.tag == f"{SVG}rect" and e.get("class") != "p"), None)
        if box is None or box.get("rx") == "2":  # the legend
            continue
        for text in group.findall(f"{SVG}text"):
            size = sizes.get(text.get("class", ""), 0.0)
            assert len(text.text or "") * size * 0.6 <= float(box.get("width", "0"))
            checked += 1
    assert checked > len(boxes(svg))


def test_an_arrow_that_goes_too_far_is_the_number_of_its_box() -> None:
    text = chain(100).replace("%v50 = f32[8,8]{1,0} sort(%v49, %v45)", "%v50 = f32[8,8]{1,0} sort(%v49, %v3)")
    text = text.replace("%v50 = f32[8,8]{1,0} sine(%v49, %v45)", "%v50 = f32[8,8]{1,0} sine(%v49, %v3)")

    told = words(graph.svg(text)).splitlines()

    assert [line for line in told if line.startswith("also from") or line == "4"] == ["4", "also from 4"]
    assert any(f"more than {graph.FAR} layers" in line for line in told)
    assert "also from" not in words(graph.svg(chain(100)))


def test_a_box_tells_few_of_many_distant_sources() -> None:
    lines = [f"s{n} = f32[2]{{0}} sine(%x)" for n in range(40)]
    chained = [f"v{n} = f32[2]{{0}} negate(%{'x' if n == 0 else f'v{n - 1}'})" for n in range(30)]
    last = f"r = f32[2]{{0}} all(%v29, {', '.join(f'%s{n}' for n in range(40))})"
    text = hlo_text("x = f32[2]{0} parameter(0)", *lines, *chained, last)

    assert "and 28 more" in words(graph.svg(text))


def test_a_picture_knows_which_program_it_shows() -> None:
    svg = graph.svg(LOOP, title="benchax graph hlo1-sha256:0")

    assert graph.read_digest(svg) == graph.digest(LOOP)
    assert graph.read_digest(graph.svg(LOOP, title="other")) == graph.digest(LOOP)
    assert graph.read_digest(graph.svg(LOOP.replace("sine(", "cosine("))) != graph.digest(LOOP)
    assert graph.read_digest("<svg></svg>") is None
    assert graph.read_digest(graph.svg(LOOP, title="<metadata>benchax graph x</metadata>")) == graph.digest(LOOP)
    assert graph.svg(LOOP, title="t") == graph.svg(LOOP, title="t")


def test_the_heading_is_the_name_of_the_module_if_nothing_else_is_given() -> None:
    assert words(graph.svg(LOOP)).startswith("jit_loop\n")
    assert words(graph.svg("")).startswith("compiled program\n")


# ---- What becomes a box, what an arrow, and what is written into a box ----------------------------------------------


def read(version: str, name: str, *, limit: int = 2000) -> ProgramDrawing:
    return ProgramDrawing((HLO / version / f"{name}.txt").read_text(), limit=limit)


def every(flow: Dataflow) -> Iterator[Box]:
    for box in flow.boxes:
        yield box
        for part in box.parts:
            yield from every(part)


def flows(flow: Dataflow) -> Iterator[Dataflow]:
    yield flow
    for box in flow.boxes:
        for part in box.parts:
            yield from flows(part)


def lines(flow: Dataflow, indent: str = "") -> Iterator[str]:
    """A line for each box: its number, what it reads, its kind and texts; what it holds is below it."""
    for place, box in enumerate(flow.boxes):
        read = ",".join(str(flow.boxes[s].number) for s, t in flow.arrows if t == place)
        yield f"{indent}{box.number} <- {read or '-'} {box.role}: {' | '.join([box.title, *box.lines])}"
        for part in box.parts:
            yield f"{indent}    {part.title}:"
            yield from lines(part, indent + "    ")


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_program_is_drawn_with_its_boxes_and_arrows(file: Path, snapshot: SnapshotAssertion) -> None:
    """Training steps, loops and branches that hold their computations, libraries, devices, donated arguments."""
    assert "\n".join(lines(ProgramDrawing(file.read_text()).flow)) == snapshot


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_instruction_is_drawn_once_or_told_elsewhere(file: Path) -> None:
    found = ProgramDrawing(file.read_text())
    boxes = list(every(found.flow))

    assert found.left_out == 0
    assert found.drawn == len(boxes)
    assert [box.number for box in sorted(boxes, key=lambda b: b.number)] == list(range(1, len(boxes) + 1))
    for flow in flows(found.flow):
        assert len(set(flow.arrows)) == len(flow.arrows)
        assert all(0 <= s < len(flow.boxes) and 0 <= t < len(flow.boxes) and s != t for s, t in flow.arrows)
        read = {s for s, _ in flow.arrows}
        unread = [box for n, box in enumerate(flow.boxes) if n not in read and box.role not in ("output", "parameter")]
        assert unread == []


def test_a_fusion_is_one_box_that_says_what_is_inside() -> None:
    (fusion,) = [box for box in every(read("jax-0.10.2", "train").flow) if box.title == "reduce → multiply"]

    assert "inside: subtract, 2 × multiply, reduce" in fusion.details


def fusion(backend: str, operation: str) -> str:
    made = f"f = f32[8,8]{{1,0}} fusion(%x), kind=kCustom, calls=%g{backend}"
    inside = ["p = f32[8,8]{1,0} parameter(0)", f"d = f32[8,8]{{1,0}} {operation}"]
    return hlo_text("x = f32[8,8]{1,0} parameter(0)", made, g=inside)


SMALL = {
    "values go straight through tuples": hlo_text(
        "x = f32[] parameter(0)",
        "s = f32[] sine(%x)",
        "u = (f32[], f32[]) tuple(%s, %x)",
        "t = (f32[], (f32[], f32[])) tuple(%x, %u)",
        'c = (f32[], f32[]) custom-call(%t), custom_call_target="both"',
        "g = f32[] get-tuple-element(%c), index=1",
        "r = f32[] negate(%g)",
    ),
    "a scalar constant is told by its reader, and an array is a box": hlo_text(
        "x = f32[2]{0} parameter(0)",
        "c = f32[] constant(0.5)",
        "a = f32[2]{0} constant({1, 2})",
        "b = f32[2]{0} scale(%x, %c)",
        "r = f32[2]{0} add(%a, %b)",
    ),
    "a scalar constant that is a result": hlo_text("c = f32[] constant(3)"),
    "one in a tuple": hlo_text("c = f32[] constant(2)", "t = (f32[]) tuple(%c)"),
    "a fusion of a GPU says who makes its code": fusion(
        ', backend_config={"operation_queue_id":"0","fusion_backend_config":{"kind":"__triton_gemm"}}', "dot(%p, %p)"
    ),
    "a library call that multiplies": fusion("", 'custom-call(%p), custom_call_target="__cublas$gemm"'),
}


@pytest.mark.parametrize("name", SMALL)
def test_what_becomes_a_box_an_arrow_or_a_text(name: str, snapshot: SnapshotAssertion) -> None:
    assert "\n".join(lines(ProgramDrawing(SMALL[name]).flow)) == snapshot


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ("jit(f)/jit(main)/dot_general", "dot_general"),
        ("jit(f)/jvp(layer0)/while/body/closed_call/tanh", "jvp(layer0)/tanh"),
        ("jit(f)/a;jit(f)/b", "a"),
        ("x", "x"),
        ("", ""),
        ("jit(f)/" + "scope/" * 20 + "add", "…" + ("scope/" * 20 + "add")[1 - dataflow.LINE :]),
    ],
)
def test_the_source_is_shortened_to_what_tells_something(source: str, short: str) -> None:
    assert dataflow.short_source(source) == short


# Large programs


@pytest.mark.parametrize("limit", range(1, 20))
def test_a_large_program_is_cut_and_says_how_much_is_missing(limit: int) -> None:
    whole = read("jax-0.10.2", "loop")
    cut = read("jax-0.10.2", "loop", limit=limit)
    boxes = list(every(cut.flow))

    assert len(boxes) == cut.drawn
    assert sum(box.role != "output" for box in boxes) <= limit
    assert cut.left_out > 0
    assert cut.instructions == whole.instructions


def test_the_outermost_computation_comes_first() -> None:
    """A program of 5 boxes, one of them a loop: with room for those 5 the loop is there, and says what it lacks."""
    cut = read("jax-0.10.2", "loop", limit=5)

    assert [box.title for box in cut.flow.boxes] == ["x", "n", "copy", "copy", "while", "output"]
    assert (cut.flow.boxes[4].parts, cut.flow.boxes[4].lines[-1]) == ((), "16 instructions inside, not drawn")


def test_a_computation_that_calls_itself_ends() -> None:
    found = ProgramDrawing(hlo_text("a = f32[] call(), to_apply=%main"))

    assert found.drawn == 2


# ---- Where boxes and lines go: nothing overlaps, arrows point down, what can be straight is -------------------------

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
    """0 → 1 → 2 → 4 and 3 → 4: 3 belongs beside 2, not at the top."""
    assert graph.ranks(5, [(0, 1), (1, 2), (2, 4), (3, 4)]) == [0, 1, 2, 2, 3]


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
        weight, first, second, side, join = range(count, count + 5)
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
