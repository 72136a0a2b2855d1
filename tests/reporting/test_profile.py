"""Profiles: operations, lines, memory over time, and steps."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest

import benchax
from benchax.model import Remark
from benchax.reporting import profile as reporting
from benchax.reporting import terminal
from benchax.reporting.document import Document, Heading, Line, Table
from benchax.reporting.profile import chart_memory, describe_recording_cost, describe_split, describe_steps, draw_memory
from benchax.reporting.profile import list_groups as blocks
from benchax.reporting.terminal import to_text
from benchax.results.inspection import Peaks
from benchax.results.profile import (
    Column,
    CompileCost,
    CompilePass,
    Device,
    Gap,
    LineMemory,
    LiveBuffers,
    OneStep,
    Op,
    PartKind,
    PartLine,
    Profile,
    ProgramSize,
    ProgramsPerStep,
    RecordingCost,
    Run,
    StepPart,
    StepSplit,
    Timeline,
)

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


def test_what_is_not_shown_is_counted() -> None:
    many = replace(FULL, ops=(OP,) * 40)

    assert "and 25 more operations: 75.0 ms" in str(many)
    assert str(many).count("fusion.3 ") < 25
    assert terminal.to_text(reporting.document(many, details=True)).count("\nfusion.3 ") == 40


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


SIZES = {
    "unrolled": ProgramSize(1016, 0, "m.py:5", 716, 1, "m.py:3"),
    "one line": ProgramSize(1016, 0, "m.py:5", 716, 1),
    "inlined": ProgramSize(150, 0, "m.py:5", 139, 3),
    "constants": ProgramSize(3, 4 << 20, "m.py:5", 1, 1),
    "nothing": ProgramSize(1000, 9, "m.py:5", 19, 1),
}


def test_compiling_says_why_it_takes_long(snapshot: Any) -> None:
    costs = {name: CompileCost("jit_step", "train.py:12", 1, 0.1, 0.2, 3.0, size=size) for name, size in SIZES.items()}

    assert {name: str(Profile("f", "cpu", (), compile_costs=(cost,))) for name, cost in costs.items()} == snapshot


PEAKS = Peaks(1e9, 1000, 1e9, 10, {"f32": 1e10})
PRODUCT = Op(
    "dot", "jit_f", "dot", 2, 0.4, 0.4, 0.5, source="/m.py:1", shape="f32[8]", flops=2e9, bytes_accessed=1e7
)  # 0.2 s of 0.4
COPY = replace(PRODUCT, name="copy", source="/m.py:2", flops=0.0, bytes_accessed=1e8)  # 0.1 s of 0.4
P = Profile("f", "cpu", (PRODUCT, COPY), fingerprint="here", peaks=PEAKS)


def beside(p: Profile) -> dict[str, tuple[str, str]]:
    """(of roofline, bound by) of each line."""
    table = next(block for block in blocks(p) if isinstance(block, Table))
    if "of roofline" not in table.names:
        return {line[0]: ("", "") for line in table.lines}
    at = table.names.index("of roofline")
    return {line[0]: (line[at], line[at + 1]) for line in table.lines}


def test_a_line_has_its_share_of_the_roofline_and_what_bounds_it() -> None:
    assert beside(P) == {"m.py:1": ("50 %", "compute"), "m.py:2": ("25 %", "memory")}
    both = replace(P, ops=(PRODUCT, replace(COPY, source="/m.py:1")))
    assert beside(both) == {"m.py:1": ("38 %", "compute")}  # one after the other: 0.2 s and 0.1 s of 0.8


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"flops": None}, ("", "")),  # a custom call
        ({"shape": "bf16[8]"}, ("", "")),  # no matmul of bf16 was measured
        ({"shape": "(f64[8], f32[8])"}, ("", "")),
        ({"total_s": None}, ("at most 50 %", "compute")),  # one of its calls has no end
        ({"self_s": 0.0}, ("", "")),
    ],
)
def test_what_is_not_known_of_a_line_is_not_made_up(change: dict[str, object], expected: tuple[str, str]) -> None:
    found = beside(replace(P, ops=(replace(PRODUCT, **change), COPY)))

    assert found == {"m.py:1": expected, "m.py:2": ("25 %", "memory")}


def test_the_rates_are_named_or_the_reason_why_there_are_none(snapshot: Any) -> None:
    without = replace(P, peaks=None, ops=(PRODUCT,) * 2)

    notes = [block.note for p in (P, without, replace(without, fingerprint=None)) for block in blocks(p)
             if isinstance(block, Table)]  # fmt: skip

    assert notes == snapshot


def test_what_the_numbers_are_is_said_once() -> None:
    scoped = replace(P, ops=(replace(PRODUCT, named_scope="layer"), COPY))

    notes = [block.note for block in blocks(scoped) if isinstance(block, Table)]

    assert notes[0] == ""
    assert "of roofline" in notes[1]


MIB = 2**20
STEPS = (0, 0, 8 * MIB, 8 * MIB, 24 * MIB, 24 * MIB, 0, 0)
TIMES_S = tuple(0.01 * i for i in range(len(STEPS)))
ON_CPU = Timeline(
    TIMES_S,
    (1e-4,) * len(STEPS),
    (Column("live_arrays", "cpu:0", STEPS), Column("resident", "", tuple(100 * MIB + size for size in STEPS))),
)


ON_GPU = Timeline(
    (0.0, 0.5),
    (0.001, 0.001),
    (Column("live_arrays", "gpu:0", (1, 1)), Column("in_use", "gpu:0", (5, 7)), Column("peak_in_use", "gpu:0", (9, 9))),
)


MADE = replace(
    ON_CPU,
    lines=(
        LineMemory("/home/me/train.py:12", (0, None, 8 * MIB, None, 24 * MIB, None, None, MIB)),
        LineMemory("(none of yours)", (0, None, 0, None, 0, None, None, 0)),
    ),
)


def test_bars_show_each_peak_no_missing_reading_and_no_mountains_of_noise() -> None:
    peak = [0] * 777 + [9] + [0] * 222

    assert draw_memory((0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 5.0, 5.1), (0, 0, 0, 0, 0, 0, 9, 9)) == "▁··█"
    assert draw_memory(range(1000), peak).count("█") == 1
    assert set(draw_memory(range(100), [10_000 + i % 3 for i in range(100)])) == {"▁"}


def test_a_chart_of_lines_has_only_what_was_read() -> None:
    *_, chart = chart_memory(MADE)
    first, _ = chart.marks

    assert isinstance(first, Line)
    assert (first.label, len(first.x)) == ("train.py:12", 4)


def of_memory(timeline: Timeline) -> Profile:
    return Profile("f", "cpu", (), timeline=timeline)


LIBRARY = replace(OP, name="qr", self_s=0.002, named_scope="layer1", source="/home/me/model.py:14")
SHOWN = {
    "everything that was found, the hottest operation first": FULL,
    "operations of two programs": replace(FULL, ops=(OP, replace(OP, module="jit_g", name="copy.1"))),
    "no operations, and why": Profile("f", "", (), remarks=(Remark("no-operations", "error", "nothing at all ran"),)),
    "no rate of a line with a custom call": Profile(
        "f",
        "cpu",
        (
            replace(OP, flops=6e9, bytes_accessed=3e6, named_scope="layer0"),
            LIBRARY,
            replace(LIBRARY, name="add", flops=1.0, bytes_accessed=8.0, self_s=0.001),
        ),
    ),
    "memory of the process and of arrays": of_memory(ON_CPU),
    "an allocator that tells": of_memory(ON_GPU),
    "no reading at all": of_memory(Timeline((), (), (), "RuntimeError: no")),
    "a few of many devices": of_memory(
        Timeline((0.0, 1.0), (0.0, 0.0), tuple(Column("live_arrays", f"cpu:{i}", (1, 2)) for i in range(9)))
    ),
    "lines that made arrays": of_memory(MADE),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_profile_is_shown(name: str, snapshot: Any) -> None:
    assert str(SHOWN[name]) == snapshot


# ---- the steps of a training loop in words --------------------------------------------------------------------------

LINE = PartLine("/home/me/loader.py:31", "batches", 0.58, samples=90)
SPLIT = StepSplit(
    "program",
    "jit_step",
    (0.01, 0.012, 0.011),
    (StepPart("input", 0.0058, 0.58, (LINE,)), StepPart("device", 0.0042, 0.42)),
    called_at="/home/me/train.py:12",
    programs=(ProgramsPerStep("jit_step", 1.0), ProgramsPerStep("jit_add", 13.0)),
    compiling_steps=2,
    samples=100,
    sampler_share=0.006,
    hottest="/home/me/model.py:7",
    hottest_share=0.9,
)


def test_one_sentence_says_what_most_of_a_step_is(snapshot: Any) -> None:
    parts = {kind: StepPart(kind, 0.0058, 0.58, (LINE,)) for kind in get_args(PartKind)}

    assert {kind: describe_split(replace(SPLIT, parts=(part, *SPLIT.parts[1:]))) for kind, part in parts.items()} == (
        snapshot
    )


def test_a_second_part_that_is_large_is_told_too_and_work_of_the_device_is_the_usual_rest() -> None:
    compiling = StepPart("compile", 0.0042, 0.42, (LINE,))

    first = describe_split(replace(SPLIT, parts=(StepPart("device", 0.0058, 0.58), compiling)))

    assert first.endswith("; 42 % is tracing and compiling at loader.py:31, in 2 of 3 steps; the device waits")
    assert "42 %" not in describe_split(SPLIT)


def test_a_recorded_time_does_not_pass_for_the_real_one(snapshot: Any) -> None:
    costs = {
        "much": RecordingCost(4e-4, 1e-4, 1800),
        "little": RecordingCost(1.01e-4, 1e-4, 30),
        "not measured": RecordingCost(4e-4, None, 1800, "the program ended before it was"),
    }

    assert {name: describe_recording_cost(cost, "a step") for name, cost in costs.items()} == snapshot


OTHER = PartLine("/home/me/decode.py:4", "decode", 0.2)
SLOW = OneStep(7, 0.5, (("unseen", 0.49),), "unseen", 0.48, "/home/me/save.py:3")
EVALUATING = OneStep(49, 0.146, (), "device", 0.07, others=(ProgramsPerStep("jit_evaluate", 4),))
RARE = (ProgramsPerStep("jit_step", 1.0), ProgramsPerStep("jit_evaluate", 0.5))
STEPS_SHOWN = {
    "no steps": replace(SPLIT, mark="none", name="", lengths_s=(2.0,), programs=()),
    "few samples": replace(SPLIT, samples=5),
    "no samples": replace(SPLIT, sampler_share=None),
    "Python while a device works": replace(SPLIT, parts=(StepPart("device", 0.0058, 0.58, (LINE,)),)),
    "several lines of a part": replace(
        SPLIT, parts=(StepPart("input", 0.0058, 0.58, (replace(LINE, share=0.38), OTHER)),)
    ),
    "the slowest step": replace(SPLIT, slowest=SLOW),
    "the slowest step called something alone": replace(SPLIT, slowest=EVALUATING),
    "a program that not each step calls": replace(SPLIT, warm_up=1, programs=RARE),
}


@pytest.mark.parametrize("name", STEPS_SHOWN)
def test_steps_are_shown(name: str, snapshot: Any) -> None:
    title = Heading(describe_split(STEPS_SHOWN[name]), 1)

    assert to_text(Document((title, *describe_steps(STEPS_SHOWN[name])))) == snapshot
