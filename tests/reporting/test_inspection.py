"""What an inspection looks like: numbers with their caveats, texts folded and marked, nothing unknown as 0."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurement_strategies import measured
from rich.console import Console

import benchax
from benchax.model import Absent, Cost, Memory, Remark
from benchax.reporting import inspection, terminal
from benchax.reporting.document import Code, Document, OutlineEntry
from benchax.reporting.inspection import (
    HEAD_LINES,
    MOST_PLAIN,
    NESTED_LINES,
    TAIL_LINES,
    diff_text,
    lines,
    make_outline,
    program_text,
    scopes,
)
from benchax.reporting.terminal import to_text
from benchax.results.inspection import (
    Collective,
    Collectives,
    Constant,
    Constants,
    Counts,
    Difference,
    DonatedArgument,
    Donation,
    HloOperation,
    HloOperations,
    Inspection,
    JaxprFacts,
    LineWork,
    Loop,
    NumberChange,
    Place,
    Primitive,
    Roofline,
    Stage,
    TextDifference,
)

FOUND = Inspection(
    "f",
    "f32[8]",
    Place("0.10.2", "0.10.2", "cpu", "cpu", 1),
    jaxpr=JaxprFacts("{ lambda ; a:f32[8]. let in (a,) }", 4, 1, 3, 2, (Primitive("tanh", 2, 1, ("m.py:3",)),), (), ()),
    stablehlo="module @jit_f {\n}",
    hlo="HloModule jit_f\n",
    counts=Counts(2e6, 1e3, 4096.0, True, (), (Loop("while.5", 10, "known"), Loop("while.9", None, "data")), 3),
    xla_cost=Cost(2e5, has_loops=True),
    memory=Memory(argument_bytes=1024, output_bytes=512, temp_bytes=0, predicted_peak_bytes=1536),
    constants=Constants((Constant("f32[4,4]", 64, "dot at m.py:1"),), ()),
    donation=Donation(
        (
            DonatedArgument("args[0]", "f32[8]", 32, True, "result[0]"),
            DonatedArgument("args[1]", "f32[9]", 36, False, None, "no output has its shape"),
            DonatedArgument("args[2]", "f32[7]", 28, None, None, "not told"),
        )
    ),
    collectives=Collectives((Collective("all-reduce", "a", 64, "{{0,1}}", 2, None),), 2),
    remarks=(Remark("warned", "warning", "JAX warned: of something"),),
)


TIMED = measured(elapsed_s=(3.9e-3, 4.0e-3, 4.1e-3, 3.9e-3, 4.0e-3, 4.1e-3))
ROOF = Roofline(2e-3, 1e-3, 1e10, 2**20, 2e9, "f32", False, TIMED)


BARE = Inspection("f", "", Place(), absent=(Absent("counts", "no program"), Absent("jaxpr", "it is a Compiled")))
PARTLY = dataclasses.replace(
    FOUND.counts or Counts(0, 0, 0, True), is_exact=False, restrictions=("the custom call 'x' is not counted",)
)
UNKNOWN_DEVICES = dataclasses.replace(FOUND, place=dataclasses.replace(FOUND.place, device_count=None))


def roof(**change: Any) -> Document:
    return inspection.document(FOUND, ("cost",), roof=dataclasses.replace(ROOF, **change))


DIFFERENT = Difference(
    "f(f32[8])",
    "f(f32[9])",
    (NumberChange("operations", 8e6, 9e6, "flop"), NumberChange("temporaries", 0, 64, "bytes")),
    ("fusions",),
    (NumberChange("sin", 5000, 4999), NumberChange("cos", 0, 1), NumberChange("tan", 1, 0)),
    texts=(
        TextDifference("jaxpr", True),
        TextDifference("stablehlo", False, 1, 1, "--- a\n+++ b\n-x\n+y"),
        TextDifference("hlo", False, 2, 0, "+z"),
    ),
    absent=(Absent("jaxpr", "it has none"),),
)
SHOWN: dict[str, Document] = {
    part: inspection.document(FOUND, (part,))
    for part in ("overview", "constants", "donation", "collectives", "memory", "cost")
} | {
    "nothing is known": inspection.document(BARE, ("overview", "constants", "donation", "collectives", "jaxpr")),
    "counts with restrictions are not exact": inspection.document(dataclasses.replace(FOUND, counts=PARTLY)),
    "a number of devices that is not known": inspection.document(UNKNOWN_DEVICES),
    "a roofline with a time": roof(),
    "a roofline without a time": roof(timed=None),
    "above the roof": roof(timed=measured(elapsed_s=(1e-3,))),
    "a roofline of what is counted": roof(is_at_least=True),
    "a rate is missing": roof(flops_s=None, absent=(Absent("flops_s", "x64 is off"),)),
    "compute-bound": roof(bytes_s=1e-4),
    "a difference": inspection.document_of_difference(DIFFERENT),
    "no difference": inspection.document_of_difference(Difference("a", "b")),
}


@pytest.mark.parametrize("name", SHOWN)
def test_each_part_says_what_is_counted_how_and_what_is_not_known(name: str, snapshot: Any) -> None:
    assert to_text(SHOWN[name]) == snapshot


def test_one_text_alone_comes_without_a_heading() -> None:
    (alone,) = inspection.document(FOUND, ("stablehlo",)).blocks

    assert alone == Code("stablehlo", "module @jit_f {\n}")
    assert len(inspection.document(FOUND, ("stablehlo", "hlo")).blocks) == 3


# ---- texts of programs ------------------------------------------------------------------------------------------


def jaxpr(outer: int, nested: int) -> str:
    body = [f"        v{i}:f32[] = sin w" for i in range(nested)]
    return "\n".join(
        ["{ let", "    a = scan[", *body, "    ] b", *(f"    x{i} = add" for i in range(outer)), "  in a }"]
    )


TABLES = 'FileNames\n1 "/x.py"\n\nStackFrames\n1 {file_location_id=1}\n\n\n'
TEXTS: tuple[tuple[Stage, str, str], ...] = (
    (
        "hlo",
        f'HloModule m\n\n{TABLES}ENTRY %e {{\n  ROOT %a = b(), metadata={{op_name="jit(f)/b" stack_frame_id=2}}\n}}',
        'HloModule m\n\nENTRY %e {\n  ROOT %a = b(), metadata={op_name="jit(f)/b"}\n}',
    ),
    (
        "stablehlo",
        f'%c = stablehlo.constant dense<"0x{"3F" * 4096}"> : tensor<1024xf32>',
        '%c = stablehlo.constant dense<"0x3F3F3F3F3F3F3F3F… 4.00 KiB"> : tensor<1024xf32>',
    ),
)


@pytest.mark.parametrize(("stage", "text", "folded"), TEXTS, ids=["tables of files", "a long constant"])
def test_what_is_noise_is_left_out_unless_a_text_is_wanted_in_full(stage: Stage, text: str, folded: str) -> None:
    assert program_text(stage, text).text == folded
    assert program_text(stage, text, full=True).text == text


def test_a_long_body_is_folded_and_says_how_much() -> None:
    text = program_text("jaxpr", jaxpr(3, NESTED_LINES + 120)).text

    assert "        … 120 lines; --full shows them" in text.splitlines()
    assert f"v{NESTED_LINES - 1}:f32" in text
    assert f"v{NESTED_LINES}:f32" not in text
    assert text.endswith("  in a }")


def test_a_long_program_keeps_its_head_and_its_tail() -> None:
    lines = program_text("jaxpr", jaxpr(10_000, 1)).text.splitlines()

    assert len(lines) == HEAD_LINES + 1 + TAIL_LINES
    assert lines[HEAD_LINES] == f"    … {10_005 - HEAD_LINES - TAIL_LINES} lines; --full shows them"


def test_the_entry_of_an_hlo_is_no_nested_body_and_others_are() -> None:
    body = "".join(f"  %v{i} = f32[] sine(%w)\n" for i in range(NESTED_LINES + 30))

    text = program_text("hlo", f"HloModule m\n\n%c {{\n{body}}}\n\nENTRY %main {{\n{body}}}\n").text

    assert text.count("  … 30 lines; --full shows them") == 1
    assert text.index("30 lines") < text.index("ENTRY")


@given(st.text(), st.sampled_from(["jaxpr", "stablehlo", "hlo"]))
def test_any_text_is_shown_and_in_full_unchanged(text: str, stage) -> None:
    program_text(stage, text)

    assert program_text(stage, text, full=True).text == text.rstrip("\n")
    assert diff_text(text, full=True).text == text


def test_colours_change_no_character_and_lines_are_not_broken() -> None:
    text = "[bold]a:f32[8] = sin[x=1] b[/bold] " + "é" * 300
    drawn = io.StringIO()

    content = terminal.render(Document((Code("jaxpr", text),)), 40)
    Console(file=drawn, width=40, force_terminal=True, color_system="truecolor").print(content, soft_wrap=True)

    assert "\x1b[36mf32[8]" in drawn.getvalue()
    plain = io.StringIO()
    Console(file=plain, width=40, color_system=None).print(content, soft_wrap=True)
    assert plain.getvalue() == text + "\n"


# ---- differences ------------------------------------------------------------------------------------------------


def scan_step(ws: Any, x: Any) -> Any:
    def loss(ws: Any) -> Any:
        return (jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0] ** 2).sum()

    return ws - jax.grad(loss)(ws)


def text_of(found: Inspection, part: str, *, full: bool = False) -> str:
    return to_text(inspection.document(found, (part,), full=full), width=200)


def test_the_values_at_the_peak_have_roles_and_lines_and_what_would_free_them() -> None:
    found = benchax.inspect(scan_step, "f32[8,64,64]", "f32[256,64]")

    shown = text_of(found, "memory")

    assert found.peak is not None
    assert "temporaries at their peak: " in shown
    assert f"instruction {found.peak.position + 1} of {found.peak.instructions}, " in shown
    assert "█" in shown
    assert "f32[8,256,64]" in shown
    assert "residual" in shown
    assert "test_inspection.py:" in shown
    assert (
        "are residuals, kept from the forward pass for the backward pass: jax.checkpoint would recompute them" in shown
    )
    assert "outputs could reuse 128 KiB of arguments if you donate them" in shown
    head, *by_line = text_of(found, "cost").partition("by line\n")[2].splitlines()
    assert head.split("  ")[-1].strip() == "at the peak"
    assert any("test_inspection.py" in line and line.rstrip().endswith("KiB") for line in by_line)


def test_without_a_peak_the_reason_is_told_and_the_table_by_line_has_no_column_for_it() -> None:
    found = benchax.inspect(lambda x: x + 1, "f32[8]")

    assert "not known, because the program has no temporaries" in text_of(found, "memory")
    assert "at the peak" not in text_of(found, "cost")
    assert "not known, because no reason was recorded" in text_of(Inspection("f", "", Place()), "memory")


RATES = Roofline(bytes_s=1.0, flops_s=1.0, bytes_per_s=1e9, flops_per_s=1e12)
PRODUCT = LineWork("m.py:1", "layer", 2e9, 0.0, 1e3, 2e9)
FUSED = LineWork("m.py:2", "", 1e6, 0.0, 0.0, 0.0)
KERNEL = LineWork("m.py:3", "", 10.0, 0.0, 4e6, 1e6)
CALL = LineWork("m.py:4", "", 0.0, 0.0, 8e6, None)
COUNTS = Counts(flops=None, transcendentals=None, bytes_accessed=None, is_exact=False)
WORK = Inspection("f", "", Place(), counts=COUNTS, lines=(PRODUCT, FUSED, KERNEL, CALL))


def test_lines_and_scopes_are_bound_by_what_their_kernels_take_longer_for(snapshot: Any) -> None:
    """Nothing is said of a line whose work is all in the kernel of another one, or in a custom call."""
    tables = [table for table in (lines(WORK, RATES), scopes(WORK, replace(RATES, is_at_least=True))) if table]

    assert to_text(Document(tuple(tables))) == snapshot


@pytest.mark.parametrize("roof", [None, Roofline(), replace(RATES, flops_per_s=None)])
def test_without_rates_there_are_no_times(roof: Roofline | None) -> None:
    table = lines(WORK, roof)

    assert table is not None
    assert {"least time", "bound by"} & set(table.names) == set()
    assert table.note == ""


def one(
    name: str, scope: str = "", inside: int | None = None, part: str = "", flops: float | None = 1.0, **others: str
) -> HloOperation:
    fields = {"opcode": "dot", "shape": "f32[8]{0}", "source": "m.py:1"} | others
    return HloOperation(name, fields["opcode"], fields["shape"], fields["source"], scope, inside, part, flops, 0.0, 8.0)


def fold(*listed: HloOperation, left_out: int = 0) -> tuple[OutlineEntry, ...]:
    return make_outline(HloOperations(listed, left_out)).entries


def names(entries: Sequence[OutlineEntry]) -> list[object]:
    """["a", ["b", ["inside b"]]]"""
    return [[entry.name, names(entry.parts)] if entry.parts else entry.name for entry in entries]


def test_scopes_are_boxes_inside_one_another_in_the_order_of_the_program() -> None:
    found = fold(
        one("a", shape="f32[8,4]{1,0:T(8)}"), one("b", "layer0/attention"),
        one("c", shape="(f32[8]{0}, /*index=1*/s32[])"), one("d", "layer0"), one("e", "layer1", flops=None),
    )  # fmt: skip

    assert names(found) == ["a", ["layer0", [["attention", ["b"]], "d"]], "c", ["layer1", ["e"]]]
    assert (found[1].kind, found[1].values[0], found[1].detail) == ("scope", 2.0, "2 operations")
    assert [found[i].detail for i in (0, 2)] == ["f32[8,4]", "2 arrays"]  # without layouts
    assert found[3].values == (None, 0.0, 8.0)  # a sum with a hole in it is none
    note = make_outline(HloOperations((one("a"),), 12)).note
    assert note.endswith("12 operations more, the deepest ones, are not listed.")


def test_a_loop_is_folded_by_the_scopes_inside_of_its_own() -> None:
    loop = one("while.1", "rnn", opcode="while", flops=30.0)
    found = fold(
        loop, one("a", "rnn/cell", 0, "body"), one("b", "rnn", 0, "body"), one("c", "other/rnn", 0, "condition")
    )

    (scope,) = found
    (shown,) = scope.parts
    assert (shown.kind, shown.name, shown.values[0]) == ("loop", "while.1", 30.0)
    assert names(shown.parts) == [["body", [["cell", ["a"]], "b"]], ["condition", [["other", [["rnn", ["c"]]]]]]]


def test_many_operations_without_scopes_are_folded_by_line() -> None:
    sources = ["m.py:1", "m.py:2", ""] * MOST_PLAIN
    found = fold(*(one(f"o{i}", source=source) for i, source in enumerate(sources)), one("alone", source="m.py:9"))

    assert [(entry.kind, entry.name, len(entry.parts)) for entry in found] == [
        ("line", "m.py:1", MOST_PLAIN),
        ("line", "m.py:2", MOST_PLAIN),
        ("line", "(the compiler's own)", MOST_PLAIN),
        ("dot", "alone", 0),
    ]
