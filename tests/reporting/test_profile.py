from __future__ import annotations

import json
from dataclasses import replace

import pytest

import benchax
from benchax.model import Remark
from benchax.reporting import (
    display,  # noqa: F401  # what print needs
    terminal,
)
from benchax.reporting import profile as reporting
from benchax.results.profile import CompilePass, Device, Gap, LiveBuffers, Op, Profile, Run

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


def test_the_hottest_operation_comes_with_its_time_share_calls_and_place() -> None:
    line = next(line for line in str(FULL).splitlines() if line.startswith("fusion.3"))

    assert line.split() == ["fusion.3", "3.00", "ms", "75", "%", "30", "100", "µs", "model.py:12", "layer0/dot"]


@pytest.mark.parametrize(
    "word",
    [
        "f, 3 runs",
        "cpu · 2 runs of programs · 100 events",
        "%fusion.3 = f32[8] fusion(%a)",
        "busy 4.00 ms, 80 % of 5.00 ms",
        "idle 1.00 ms",
        "between fusion.3 and copy.1",
        "3.00 ms  2.00 ms to 4.00 ms, 2 runs",
        "all passes",
        "float32[3,5]",
        "2 ×, 120 B",
        "/tmp/x/vm.xplane.pb",
    ],
)
def test_everything_that_was_found_is_shown(word: str) -> None:
    assert word in str(FULL)


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
