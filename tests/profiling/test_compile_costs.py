"""What functions cost to compile, from the marks in a trace."""

from __future__ import annotations

import pytest
from steps_by_hand import LOOP, US, compiled, read
from xspace_by_hand import Event

from benchax.profiling.marks import COMPILED, encode


def mark(kind: str, at_us: int, took_us: int, name: str = "step", before: int = 0) -> Event:
    return Event(f"{COMPILED}{kind} {name} {encode((LOOP,))}", at_us * US, 0, {"elapsed_us": took_us, "before": before})


def test_a_function_is_what_it_took_to_trace_lower_and_compile_and_the_line_that_called_it() -> None:
    marks = [mark("trace", 100, 50), mark("lower", 200, 80), compiled(1000, 700, LOOP), compiled(2000, 300, LOOP)]

    (found,) = read(marks, []).compile_costs

    assert (found.name, found.source, found.programs) == ("jit_step", "/home/me/train.py:12", 2)
    assert (found.trace_s, found.lower_s, found.compile_s) == pytest.approx((50e-6, 80e-6, 1000e-6))


def test_what_was_compiled_before_the_recording_counts_and_has_no_passes() -> None:
    (found,) = read([compiled(0, 700, LOOP, before=1)], []).compile_costs

    assert (found.compile_s, found.passes) == (pytest.approx(700e-6), ())


def test_the_longest_passes_of_a_compilation_are_those_that_ran_meanwhile() -> None:
    calls = [Event("PjRtCpuClient::Compile", 300 * US, 600 * US), Event("fusion (jit_step)", 400 * US, 250 * US)]
    other = [Event("PjRtCpuClient::Compile", 2300 * US, 600 * US), Event("cse", 2400 * US, 100 * US)]
    marks = [compiled(1000, 700, LOOP), compiled(3000, 700, LOOP, name="jit(init)")]

    found = {one.name: dict(one.passes) for one in read(marks, [*calls, *other]).compile_costs}

    assert found["jit_step"]["fusion"] == pytest.approx(250e-6)
    assert found["jit_init"]["cse"] == pytest.approx(100e-6)
    assert found["jit_step"]["PjRtCpuClient::Compile"] == pytest.approx(350e-6)
    assert "cse" not in found["jit_step"]


def test_functions_stand_in_the_order_of_what_they_cost() -> None:
    marks = [compiled(1000, 300, LOOP, name="jit(small)"), compiled(2000, 700, LOOP, name="jit(large)")]

    assert [one.name for one in read(marks, []).compile_costs] == ["jit_large", "jit_small"]
