"""The picture: well-formed whatever is in it, self-contained, of reasonable size, and it knows what it shows."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from compiled_texts import hlo_text
from hypothesis import given
from hypothesis import strategies as st

from benchax.program import graph
from benchax.program.graph import dataflow

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
@pytest.mark.parametrize("expand_fusions", [False, True])
def test_every_program_is_drawn_whole(file: Path, expand_fusions: bool) -> None:
    text = file.read_text()
    svg = graph.svg(text, title="a title", expand_fusions=expand_fusions)
    count = dataflow.program(text, expand_fusions=expand_fusions).drawn

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
    assert graph.read_digest(graph.svg(LOOP, title="other", expand_fusions=True)) == graph.digest(LOOP)
    assert graph.read_digest(graph.svg(LOOP.replace("sine(", "cosine("))) != graph.digest(LOOP)
    assert graph.read_digest("<svg></svg>") is None
    assert graph.read_digest(graph.svg(LOOP, title="<metadata>benchax graph x</metadata>")) == graph.digest(LOOP)
    assert graph.svg(LOOP, title="t") == graph.svg(LOOP, title="t")


def test_the_heading_is_the_name_of_the_module_if_nothing_else_is_given() -> None:
    assert words(graph.svg(LOOP)).startswith("jit_loop\n")
    assert words(graph.svg("")).startswith("compiled program\n")
