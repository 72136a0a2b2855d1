"""What an inspection looks like: numbers with their caveats, texts folded and marked, nothing unknown as 0."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchax.model import Absent, Cost, Memory, Remark
from benchax.reporting import (
    display,  # noqa: F401  # what print needs
    inspection,
    terminal,
)
from benchax.reporting.document import Code, Document
from benchax.reporting.program_text import HEAD_LINES, NESTED_LINES, TAIL_LINES, diff_text, program_text
from benchax.reporting.terminal import to_text
from benchax.results.difference import Difference, NumberChange, TextDifference
from benchax.results.inspection import (
    Collective,
    Collectives,
    Constant,
    Constants,
    Counts,
    DonatedArgument,
    Donation,
    Inspection,
    JaxprFacts,
    Loop,
    Place,
    Primitive,
)
from benchax.results.roofline import Roofline, Timing

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
ROOF = Roofline(2e-3, 1e-3, 1e10, 2**20, 2e9, "f32", False, Timing("wall", 4e-3, 3.9e-3, 4.1e-3))


BARE = Inspection("f", "", Place(), absent=(Absent("counts", "no program"), Absent("jaxpr", "it is a Compiled")))
PARTLY = dataclasses.replace(
    FOUND.counts or Counts(0, 0, 0, True), is_exact=False, restrictions=("the custom call 'x' is not counted",)
)
UNKNOWN_DEVICES = dataclasses.replace(FOUND, place=dataclasses.replace(FOUND.place, device_count=None))


def shown(found: Inspection, *show: str, roof: Roofline | None = None) -> str:
    return to_text(inspection.document(found, show or ("overview",), roof=roof))


@pytest.mark.parametrize("part", ["overview", "constants", "donation", "collectives", "memory", "cost"])
def test_each_part_says_what_is_counted_how(part: str, snapshot: Any) -> None:
    assert shown(FOUND, part) == snapshot


def test_what_is_not_known_says_why_and_is_no_number(snapshot: Any) -> None:
    text = shown(BARE, "overview", "constants", "donation", "collectives", "jaxpr")

    assert text == snapshot
    assert " 0 " not in text


def test_counts_with_restrictions_are_at_least(snapshot: Any) -> None:
    assert shown(dataclasses.replace(FOUND, counts=PARTLY)) == snapshot


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"timing": None},
        {"timing": Timing("wall", 1e-3)},
        {"is_at_least": True},
        {"flops_s": None, "absent": (Absent("flops_s", "x64 is off"),)},
        {"bytes_s": 1e-4},
    ],
    ids=["with a time", "without a time", "above the roof", "not all is counted", "a rate is missing", "compute-bound"],
)
def test_the_roofline_names_rates_and_a_share_only_where_there_is_one(change: dict[str, Any], snapshot: Any) -> None:
    assert shown(FOUND, "cost", roof=dataclasses.replace(ROOF, **change)) == snapshot


def test_a_number_of_devices_that_is_not_known_is_left_out() -> None:
    assert "device" in shown(FOUND).splitlines()[1]
    assert "device" not in shown(UNKNOWN_DEVICES).splitlines()[1]


def test_it_is_shown_by_print() -> None:
    assert str(FOUND) == to_text(inspection.document(FOUND))
    assert "<details>" in (FOUND._repr_html_() or "")


def test_one_text_alone_comes_without_a_heading() -> None:
    (alone,) = inspection.document(FOUND, ("stablehlo",)).blocks

    assert alone == Code("stablehlo", "module @jit_f {\n}")
    assert len(inspection.document(FOUND, ("stablehlo", "hlo")).blocks) == 3


def test_a_notebook_gets_the_overview_and_the_texts_escaped() -> None:
    html = dataclasses.replace(FOUND, name="<b>")._repr_html_() or ""

    assert "&lt;b&gt;(f32[8])" in html
    assert "<b>(" not in html
    assert html.count("<details>") == 3


# ---- texts of programs ------------------------------------------------------------------------------------------


def jaxpr(outer: int, nested: int) -> str:
    body = [f"        v{i}:f32[] = sin w" for i in range(nested)]
    return "\n".join(
        ["{ let", "    a = scan[", *body, "    ] b", *(f"    x{i} = add" for i in range(outer)), "  in a }"]
    )


def test_a_long_body_is_folded_and_says_how_much() -> None:
    text = program_text("jaxpr", jaxpr(3, NESTED_LINES + 120)).text

    assert "        … 120 lines; --full shows them" in text.splitlines()
    assert f"v{NESTED_LINES - 1}:f32" in text
    assert f"v{NESTED_LINES}:f32" not in text
    assert text.endswith("  in a }")


def test_a_long_program_keeps_its_head_and_its_tail() -> None:
    lines = program_text("jaxpr", jaxpr(10_000, 1)).text.splitlines()

    assert len(lines) == HEAD_LINES + 1 + TAIL_LINES
    assert lines[HEAD_LINES] == f"… {10_005 - HEAD_LINES - TAIL_LINES} lines; --full shows them"


def test_the_entry_of_an_hlo_is_no_nested_body_and_others_are() -> None:
    body = "".join(f"  %v{i} = f32[] sine(%w)\n" for i in range(NESTED_LINES + 30))

    text = program_text("hlo", f"HloModule m\n\n%c {{\n{body}}}\n\nENTRY %main {{\n{body}}}\n").text

    assert text.count("  … 30 lines; --full shows them") == 1
    assert text.index("30 lines") < text.index("ENTRY")


def test_tables_of_files_are_left_out_of_an_hlo_unless_it_is_wanted_in_full() -> None:
    tables = 'FileNames\n1 "/x.py"\n\nStackFrames\n1 {file_location_id=1}\n\n\n'
    operation = 'ROOT %a = f32[] b(), metadata={op_name="jit(f)/b" stack_frame_id=2}'
    text = f"HloModule m\n\n{tables}ENTRY %e {{\n  {operation}\n}}"

    folded = program_text("hlo", text).text

    assert folded == 'HloModule m\n\nENTRY %e {\n  ROOT %a = f32[] b(), metadata={op_name="jit(f)/b"}\n}'
    assert program_text("hlo", text, full=True).text == text


def test_a_long_constant_is_elided_with_its_size() -> None:
    line = f'%c = stablehlo.constant dense<"0x{"3F" * 4096}"> : tensor<1024xf32>'

    assert program_text("stablehlo", line).text == (
        '%c = stablehlo.constant dense<"0x3F3F3F3F3F3F3F3F… 4.00 KiB"> : tensor<1024xf32>'
    )
    assert program_text("stablehlo", line, full=True).text == line


@given(st.text(), st.sampled_from(["jaxpr", "stablehlo", "hlo"]))
def test_any_text_is_shown_and_in_full_unchanged(text: str, stage) -> None:
    program_text(stage, text)

    assert program_text(stage, text, full=True).text == text.rstrip("\n")
    assert diff_text(text, full=True).text == text


def test_colours_change_no_character_and_lines_are_not_broken() -> None:
    text = "[bold]a:f32[8] = sin[x=1] b[/bold] " + "é" * 300
    drawn = io.StringIO()

    content = terminal.render(Document((Code("jaxpr", text),)))
    Console(file=drawn, width=40, force_terminal=True, color_system="truecolor").print(content, crop=False)

    assert "\x1b[36mf32[8]" in drawn.getvalue()
    plain = io.StringIO()
    Console(file=plain, width=40, color_system=None).print(content, crop=False)
    assert plain.getvalue() == text + "\n"


# ---- differences ------------------------------------------------------------------------------------------------


def test_a_difference_shows_tables_and_the_first_text_that_differs(snapshot: Any) -> None:
    difference = Difference(
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

    assert str(difference) == snapshot


def test_no_difference_is_said(snapshot: Any) -> None:
    assert str(Difference("a", "b")) == snapshot
