from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import benchax
from benchax.model import Remark
from benchax.reporting import (
    display,  # noqa: F401  # what print needs
    terminal,
)
from benchax.reporting import profile as reporting
from benchax.results.profile import CompileCost, CompilePass, Device, Gap, LiveBuffers, Op, Profile, ProgramSize, Run

OP = Op(
    "fusion.3",
    "jit_f",
    "fusion",
    30,
    0.004,
    0.003,
    0.75,
    "jit(f)/layer0/dot",
    "/home/me/model.py:12",
    "%fusion.3 = f32[8] fusion(%a)",
)
FULL = Profile(
    "f, 3 runs",
    "cpu",
    (OP, replace(OP, name="copy.1", self_s=0.001, share=0.25, scope=None, source=None, hlo=None, category="copy")),
    devices=(Device("cpu:0", 0.004, 0.001, (Gap(0.0, 0.0005, "fusion.3", "copy.1"),)),),
    runs=(Run("jit_f", "cpu:0", 1, 0.0, 0.002), Run("jit_f", "cpu:0", 2, 0.0, 0.004)),
    passes=(CompilePass("fusion", 2, 0.02),),
    compile_s=0.03,
    n_events=100,
    left_over=(LiveBuffers((3, 5), "float32", 2, 120),),
    live_bytes_before=0,
    live_bytes_after=120,
    files={"xplane": "/tmp/x/vm.xplane.pb"},
)


def test_everything_that_was_found_is_shown_the_hottest_operation_first(snapshot: Any) -> None:
    assert str(FULL) == snapshot


def test_without_operations_there_is_a_reason_and_no_table() -> None:
    empty = Profile("f", "", (), remarks=(Remark("no-operations", "error", "nothing at all ran"),))

    assert "nothing at all ran" in str(empty)
    assert "self time" not in str(empty)
    assert "<table" not in (empty._repr_html_() or "")


def test_what_is_not_shown_is_counted() -> None:
    many = replace(FULL, ops=(OP,) * 40)

    assert "and 25 more operations: 75.0 ms" in str(many)
    assert str(many).count("fusion.3 ") < 25
    assert terminal.to_text(reporting.document(many, details=True)).count("\nfusion.3 ") == 40


@pytest.mark.parametrize("name", ["ядро ядро", "日本" * 30, "a\nb\tc", "[bold]x[/bold]", "x" * 10_000, "</td><script>"])
def test_any_name_survives(name: str) -> None:
    strange = replace(FULL, title=name, ops=(replace(OP, name=name, scope=f"jit(f)/{name}", hlo=name),))

    assert " ".join(name.split())[:8] in str(strange)
    assert [line for line in str(strange).splitlines() if len(line) >= 200 and line != name] == []
    assert "<script>" not in (strange._repr_html_() or "")


def test_details_cut_nothing() -> None:
    long = replace(OP, hlo="%fusion.3 = " + "x" * 300)

    shown = terminal.to_text(reporting.document(replace(FULL, ops=(long,)), details=True), width=1000)

    assert str(long.hlo) in shown
    assert "/home/me/model.py:12 jit(f)/layer0/dot" in shown


def test_a_profile_is_data() -> None:
    assert isinstance(FULL, benchax.Profile)
    assert json.loads(json.dumps(FULL.asdict()))["ops"][0]["self_s"] == 0.003
    assert FULL.device_s == (0.002, 0.004)
    assert OP.per_call_s == pytest.approx(1e-4)


def test_lines_and_scopes_say_how_fast_their_work_was_done(snapshot: Any) -> None:
    """No rate of a line with a custom call in it."""
    product = replace(OP, flops=6e9, bytes_accessed=3e6, named_scope="layer0")
    library = replace(OP, name="qr", self_s=0.002, named_scope="layer1", source="/home/me/model.py:14")
    beside = replace(library, name="add", flops=1.0, bytes_accessed=8.0, self_s=0.001)

    assert str(Profile("f", "cpu", (product, library, beside))) == snapshot


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (
            ProgramSize(1016, 0, "m.py:5", 716, 1, "m.py:3"),
            "716 of 1016 instructions are from m.py:5, unrolled by the loop at m.py:3;",
        ),
        (
            ProgramSize(1016, 0, "m.py:5", 716, 1),
            "716 of 1016 instructions are from m.py:5 ",
        ),
        (
            ProgramSize(150, 0, "m.py:5", 139, 3),
            "139 of 150 instructions are from m.py:5, reached from 3 places and inlined",
        ),
        (ProgramSize(3, 4 << 20, "m.py:5", 1, 1), "4.00 MiB of constants are in the program; as arguments"),
    ],
)
def test_compiling_says_why_it_takes_long(size: ProgramSize, reason: str) -> None:
    cost = CompileCost("jit_step", "train.py:12", 1, 0.1, 0.2, 3.0, size=size)

    assert f"jit_step: {reason}" in " ".join(str(replace(FULL, compile_costs=(cost,))).split())


def test_of_a_program_without_repetition_nothing_is_said() -> None:
    cost = CompileCost("jit_step", "train.py:12", 1, 0.1, 0.2, 3.0, size=ProgramSize(1000, 9, "m.py:5", 19, 1))

    assert "m.py:5" not in str(replace(FULL, ops=(), compile_costs=(cost,)))
