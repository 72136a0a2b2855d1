"""What becomes a box, what an arrow, and what is written into a box."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compiled_texts import hlo_text
from syrupy.assertion import SnapshotAssertion

from benchax.program.graph import dataflow
from benchax.program.graph.dataflow import Box, Dataflow, ProgramDrawing, program, role_of, role_of_fusion

HLO = Path(__file__).parents[1] / "golden" / "hlo"
GOLDEN = sorted(HLO.glob("*/*.txt"))


def read(version: str, name: str, *, expand_fusions: bool = False, limit: int = 2000) -> ProgramDrawing:
    return program((HLO / version / f"{name}.txt").read_text(), expand_fusions=expand_fusions, limit=limit)


def every(flow: Dataflow) -> Iterator[Box]:
    for box in flow.boxes:
        yield box
        for part in box.parts:
            yield from every(part.flow)


def flows(flow: Dataflow) -> Iterator[Dataflow]:
    yield flow
    for box in flow.boxes:
        for part in box.parts:
            yield from flows(part.flow)


def lines(flow: Dataflow, indent: str = "") -> Iterator[str]:
    """A line for each box: its number, what it reads, its kind and texts; what it holds is below it."""
    for place, box in enumerate(flow.boxes):
        read = ",".join(str(flow.boxes[s].number) for s, t in flow.arrows if t == place)
        yield f"{indent}{box.number} <- {read or '-'} {box.role}: {' | '.join([box.title, *box.lines])}"
        for part in box.parts:
            yield f"{indent}    {part.title}:"
            yield from lines(part.flow, indent + "    ")


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_program_is_drawn_with_its_boxes_and_arrows(file: Path, snapshot: SnapshotAssertion) -> None:
    """Training steps, loops and branches that hold their computations, libraries, devices, donated arguments."""
    assert "\n".join(lines(program(file.read_text()).flow)) == snapshot


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: f"{file.parent.name}/{file.stem}")
@pytest.mark.parametrize("expand_fusions", [False, True])
def test_every_instruction_is_drawn_once_or_told_elsewhere(file: Path, expand_fusions: bool) -> None:
    found = program(file.read_text(), expand_fusions=expand_fusions)
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


def test_a_fusion_is_one_box_that_says_what_is_inside_or_is_opened(snapshot: SnapshotAssertion) -> None:
    closed, opened = (read("jax-0.10.2", "train", expand_fusions=expand).flow for expand in (False, True))

    (fusion,) = [box for box in every(closed) if box.title == "reduce → multiply"]
    assert "inside: subtract, 2 × multiply, reduce" in fusion.details
    assert "\n".join(lines(opened)) == snapshot


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
    assert "\n".join(lines(program(SMALL[name]).flow)) == snapshot


def test_kinds_of_operations_go_by_their_names() -> None:
    for target in ("__cublas$gemm", "__cublas$lt$matmul", "__cudnn$convForward", "__onednn$matmul"):
        assert role_of("custom-call", target) == "matmul"
    assert role_of("a-new-one") == "elementwise"
    assert role_of("custom-call", "convert_something") == "library"
    assert role_of_fusion([]) == "movement"
    assert role_of_fusion(["movement", "elementwise", "reduction"]) == "reduction"


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
    found = program(hlo_text("a = f32[] call(), to_apply=%main"))

    assert found.drawn == 2
