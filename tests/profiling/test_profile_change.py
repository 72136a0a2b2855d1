from __future__ import annotations

import pytest

from benchax.profiling.profile_change import compare_profiles
from benchax.results.profile import Op, Profile, Run


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


def test_more_calls_are_more_time_per_run() -> None:
    (change,) = compare_profiles(profile(op("a", 2.0, 2, "jit(f)/x")), profile(op("a", 6.0, 6, "jit(f)/x"))).ops

    assert (change.before_s, change.after_s) == (1.0, 3.0)
    assert (change.calls_before, change.calls_after) == (2, 6)


def test_what_is_new_or_gone_is_not_zero() -> None:
    changes = compare_profiles(
        profile(op("a", 2.0, 2, "jit(f)/x")), profile(op("a", 2.0, 2, "jit(f)/x", shape="f32[9]"))
    ).ops

    assert [(c.shape, c.before_s, c.after_s) for c in changes] == [("f32[9]", None, 1.0), ("f32[8]", 1.0, None)]


def test_without_runs_times_are_per_call() -> None:
    change = compare_profiles(profile(op("a", 2.0, 4, None), runs=0), profile(op("a", 3.0, 4, None)))

    assert change.per == "call"
    assert (change.ops[0].before_s, change.ops[0].after_s) == (0.5, 0.75)


@pytest.mark.parametrize("word", ["for a verdict use `benchax", "self time per run", "not there", "+1.00 s"])
def test_it_shows_itself_without_a_verdict(word: str) -> None:
    import benchax

    assert benchax.Profile
    before = profile(op("a", 2.0, 2, "jit(f)/x"), op("gone", 1.0, 1, "jit(f)/y"))

    shown = compare_profiles(before, profile(op("a", 4.0, 2, "jit(f)/x")))

    assert word in str(shown)
    assert "verdict" in (shown._repr_html_() or "")


def test_an_operation_in_another_dtype_is_the_same_operation() -> None:
    before = profile(op("dot.3", 0.002, 2, "jit(f)/dot_general", shape="bf16[64,64]"))
    after = profile(op("dot.7", 0.006, 2, "jit(f)/dot_general", shape="f32[64,64]"))

    (change,) = compare_profiles(before, after).ops

    assert (change.shape_before, change.shape) == ("bf16[64,64]", "f32[64,64]")
    assert change.more_s == pytest.approx(0.002)
