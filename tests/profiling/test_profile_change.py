from __future__ import annotations

from dataclasses import replace

import pytest

from benchax.profiling.profile_change import compare_profiles
from benchax.reporting import display  # noqa: F401  # what print needs
from benchax.results.profile import Op, PartChange, Profile, Run, StepPart, StepSplit


def op(name: str, self_s: float, calls: int, scope: str | None, category: str = "fusion", shape: str = "f32[8]") -> Op:
    return Op(name, "jit_f", category, calls, self_s, self_s, 0.1, scope, shape=shape)


def profile(*ops: Op, runs: int = 2) -> Profile:
    return Profile("p", "cpu", ops, runs=tuple(Run("jit_f", "cpu:0", i, 0.0, 1.0) for i in range(runs)))


def test_operations_are_matched_by_origin_and_not_by_name() -> None:
    before = profile(op("fusion.3", 4.0, 4, "jit(f)/mm/dot"), op("copy.1", 0.5, 2, None, "copy"))
    after = profile(op("fusion.9", 6.0, 4, "jit(g)/mm/dot"), op("copy.7", 0.5, 2, None, "copy"))

    changes = compare_profiles(before, after).ops

    assert [(c.name, c.before_s, c.after_s, c.more_s) for c in changes] == [
        ("fusion.9", 2.0, 3.0, 1.0),
        ("copy.7", 0.25, 0.25, 0.0),
    ]


A = op("a", 2.0, 2, "jit(f)/x")
OTHER_SHAPE = op("a", 2.0, 2, "jit(f)/x", shape="f32[9]")


@pytest.mark.parametrize(
    ("before", "after", "per", "times"),
    [
        (profile(A), profile(op("a", 6.0, 6, "jit(f)/x")), "run", [(1.0, 3.0, 2, 6)]),
        (profile(A), profile(OTHER_SHAPE), "run", [(None, 1.0, 0, 2), (1.0, None, 2, 0)]),  # new, and gone
        (profile(op("a", 2.0, 4, None), runs=0), profile(op("a", 3.0, 4, None)), "call", [(0.5, 0.75, 4, 4)]),
    ],
)
def test_times_are_per_run_or_per_call_where_runs_are_not_known(
    before: Profile, after: Profile, per: str, times: list[tuple[float | None, float | None, int, int]]
) -> None:
    change = compare_profiles(before, after)

    assert change.per == per
    assert [(c.before_s, c.after_s, c.calls_before, c.calls_after) for c in change.ops] == times


def test_it_shows_itself_without_a_verdict() -> None:
    before = profile(op("a", 2.0, 2, "jit(f)/x"), op("gone", 1.0, 1, "jit(f)/y"))

    shown = compare_profiles(before, profile(op("a", 4.0, 2, "jit(f)/x")))

    for word in ("for a verdict use `benchax", "self time per run", "not there", "+1.00 s"):
        assert word in str(shown)
    assert "verdict" in (shown._repr_html_() or "")


def sourced(source: str, self_s: float, module: str = "jit_f", shape: str = "f32[8]", scope: str = "jit(f)/x") -> Op:
    return Op("a", module, "dot", 2, self_s, self_s, 0.1, scope, source=source, shape=shape)


def test_by_line_operations_that_are_named_and_laid_out_anew_have_one_change() -> None:
    before = profile(sourced("m.py:7", 2.0, scope="jit(f)/a"))
    after = profile(sourced("m.py:7", 4.0, scope="jit(f)/b", shape="f32[4,2]"), sourced("", 1.0, scope="jit(f)/c"))

    lines = compare_profiles(before, after).lines

    assert [(line.source, line.before_s, line.after_s) for line in lines] == [("m.py:7", 1.0, 2.0), ("", 0.0, 0.5)]


def test_times_per_run_of_different_programs_are_not_added_up() -> None:
    runs = tuple(Run(f"jit_{name}", "cpu:0", i, 0.0, 1.0) for name, n in (("init", 1), ("step", 100)) for i in range(n))
    once, often = sourced("m.py:7", 3.0, "jit_init"), sourced("m.py:7", 100.0, "jit_step", scope="jit(f)/s")
    more = sourced("m.py:7", 150.0, "jit_step", scope="jit(f)/s")

    change = compare_profiles(Profile("p", "cpu", (once, often), runs=runs), Profile("q", "cpu", (more,), runs=runs))

    assert [(line.module, line.more_s) for line in change.lines] == [("jit_step", 0.5), ("jit_init", -3.0)]
    assert "the line that differs most: +500 ms at m.py:7 in jit_step a run" in str(change)


def test_an_operation_in_another_dtype_is_the_same_one_and_told_in_the_first_lines() -> None:
    before = profile(sourced("m.py:7", 0.002, shape="bf16[64,64]"))
    after = profile(sourced("m.py:7", 0.038, shape="f32[64,64]"))

    change = compare_profiles(before, after)

    (one,) = change.ops
    assert (one.shape_before, one.shape, one.more_s) == ("bf16[64,64]", "f32[64,64]", pytest.approx(0.018))
    assert "+18.0 ms at m.py:7, dot is f32[64,64] now, was bf16[64,64] a run" in str(change).splitlines()[1]


def test_of_two_loops_the_parts_of_a_step_are_compared() -> None:
    def looped(input_s: float) -> Profile:
        parts = (StepPart("input", input_s, 0.5), StepPart("device", 0.004, 0.5))
        return replace(
            profile(sourced("m.py:7", 1.0)), split=StepSplit("program", "jit_f", (input_s + 0.004,) * 3, parts)
        )

    change = compare_profiles(looped(0.004), looped(0.009))

    assert change.steps_s == (0.008, 0.013)
    assert change.parts[0] == PartChange("input", 0.004, 0.009)
    assert "a step takes 13.0 ms, before 8.00 ms (medians): +5.00 ms" in str(change).splitlines()[1]
