"""What holds for every variant, what it is told, and from what was seen to a row."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from comparisons_by_hand import compared as by_hand
from hypothesis import given
from hypothesis import strategies as st
from labs_by_hand import ScriptedLab

from benchax.case import make_case
from benchax.discovery import resolve_target
from benchax.errors import NotMeasured, UsageError
from benchax.experiments import experiment
from benchax.experiments.experiment import choose_variants, run_experiment, time_limit
from benchax.experiments.functions import arguments
from benchax.experiments.lab import Observation
from benchax.experiments.variant import Asked, Variant, add_comparison, seen_row, wrongness
from benchax.experiments.variants import VARIANTS, choose_promising
from benchax.experiments.variants.sweeps import in_words
from benchax.model import Failure, Memory, Numerics, Remark
from benchax.results.experiment import Errors, VariantRow


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=lambda variant: variant.name)
def test_a_variant_says_what_it_does_and_what_it_has_to_be_told(variant: Variant) -> None:
    """It changes a case or measures; remat does both: among others it changes the case in the first of its ways."""
    does = {variant.changes is not None, variant.measures is not None}
    assert does == ({True} if variant.name == "remat" else {True, False})
    assert re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", variant.name)
    assert variant.title
    if variant.untold:
        with pytest.raises(NotMeasured, match=re.escape(variant.untold)):
            variant.plan(make_case(abs, ("f32[4]",)))


# ---- What sweeping variants are told ----


SQUARE = make_case(lambda x: x, (jnp.ones((2, 2)),))


def asked(variant: str, case: Any = SQUARE, given: Any = None) -> Asked:
    return Asked(VARIANTS[variant], case, given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("n=1,2", ("n", "1,2")),
        ("1..8", ("", "1..8")),
        ("x.0+w.1", ("x.0+w.1", None)),
        ({"n": [1, 2]}, ("n", [1, 2])),
        ([1, 2], ("", [1, 2])),
    ],
)
def test_arguments_stand_before_the_equals_sign_and_values_behind(given: Any, expected: tuple[str, Any]) -> None:
    assert asked("static", given=given).halves() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1,2", (1, 2)), ("'a',None", ("a", None)), ("(1, 2),3", ((1, 2), 3)), ("same,valid", ("same", "valid"))],
)
def test_values_are_read_as_python_and_words_as_texts(text: str, expected: tuple[Any, ...]) -> None:
    assert asked("static").values(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("130,100,100", (100, 130)), ("1..8", (1, 2, 4, 8)), ("3..13,5", (3, 5, 6, 12))]
)
def test_sizes_are_sorted_and_dots_double(text: str, expected: tuple[int, ...]) -> None:
    assert asked("vmap").sizes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "8..1", "a", "1.5", "9" * 40, "1..x", None, 3.5])
def test_sizes_that_are_none_are_quoted(text: Any) -> None:
    with pytest.raises(UsageError) as caught:
        asked("vmap").sizes(text)

    assert repr(text) in str(caught.value)


def read_or_refused(read: Callable[[str], tuple[Any, ...]], text: str) -> tuple[Any, ...] | str:
    """The values, or what the refusal says."""
    try:
        return read(text)
    except UsageError as error:
        return str(error)


@given(st.text(max_size=40))
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    vmap = asked("vmap", SQUARE, text)

    for read in (vmap.values, vmap.sizes, lambda text: vmap.axes(vmap.halves()[0])):
        assert read_or_refused(read, text)  # neither nothing nor an error without words


def test_arguments_go_by_name_or_position_and_static_ones_have_no_axes() -> None:
    case = make_case(lambda x, n, *, w: x, (jnp.ones((2, 3)), 4), {"w": jnp.ones(3)}, static=("n",))
    shapes = asked("shapes", case)

    assert arguments(case, shapes.inputs) == {"x": 0, "w": "w"}
    assert shapes.axes("x.1+w") == ((0, 1), ("w", 0))
    assert shapes.axes("0") == ((0, 0),)
    with pytest.raises(UsageError, match="'n'"):
        shapes.axes("n")
    with pytest.raises(UsageError, match="has no axis 2"):
        shapes.axes("x.2")


def test_what_is_named_is_that_of_the_file_of_the_function(project: Path) -> None:
    """No second import, which would make other classes; another file is imported once."""
    (project / "code.py").write_text("class Own: pass\ndef f(x): return x\n")
    (project / "other.py").write_text("class Other: pass\n")
    f: Any = resolve_target("code.py:f")

    names = ["code.py:Own", "other.py:Other", "./other.py:Other"]
    own, other, again = map(asked("loop", make_case(f)).named_object, names)

    assert own is f.__globals__["Own"]
    assert other is again
    assert asked("loop").named_object("jax.numpy:sin") is jnp.sin


@pytest.mark.parametrize("name", ["", ":", "f", ":f", "code.py:", "code.py"])
def test_what_is_no_name_is_quoted(name: str) -> None:
    with pytest.raises(UsageError, match="MODULE:NAME") as caught:
        asked("loop").named_object(name)

    assert f"loop is given the name {name!r}" in caught.value.problem


# ---- What an experiment tries where nothing is named: what can help here, the most promising first, in a minute ----


@pytest.mark.parametrize(
    ("backend", "left_out"),
    [("cpu", {"default", "tf32", "high", "highest"}), ("gpu", set())],
)
def test_what_cannot_help_on_a_backend_is_left_out(backend: str, left_out: set[str]) -> None:
    only_by_name = {"eager", "f64", "devices", "mesh", "sync", "cache"}
    assert set(VARIANTS) - set(choose_promising(backend)) == left_out | only_by_name


def test_the_most_promising_come_first_and_what_is_named_is_tried_whatever_it_promises() -> None:
    assert list(choose_promising("cpu"))[:5] == ["jit", "hoist", "unroll", "accumulate-gradients", "donate"]
    assert choose_variants(["eager", "f64"]) == ({"eager": VARIANTS["eager"], "f64": VARIANTS["f64"]}, True)


@pytest.mark.parametrize(
    ("asked_s", "names", "limit_s"),
    [(None, None, 60.0), (5.0, None, 5.0), (None, ["bf16"], None), (5.0, ["bf16"], 5.0)],
)
def test_a_minute_is_the_limit_where_nothing_was_asked_for(asked_s: Any, names: Any, limit_s: Any) -> None:
    assert time_limit(asked_s, names) == limit_s


def logistic(x: jax.Array) -> jax.Array:
    """The logistic map, in which a difference doubles with each iteration."""
    return jax.lax.fori_loop(0, 100, lambda i, x: 3.9999 * x * (1 - x), x)


def test_a_chaotic_function_is_said_to_be_one() -> None:
    case = make_case(logistic, (jnp.linspace(0.1, 0.9, 64),))

    found = run_experiment(case, ["donate"], ScriptedLab())

    (remark,) = found.remarks
    assert remark.code == "chaotic"
    assert "chaotic systems" in remark.message
    assert "errors of variants are meaningless" in remark.message
    assert run_experiment(make_case(jnp.sin, ("f32[64]",)), ["donate"], ScriptedLab()).remarks == ()


# ---- rows ------------------------------------------------------------------------------------------------------------

MIB = 2**20


def seen(errors: Errors | None = None, peak: int | None = 2 * MIB, bound: float = 3.5e-4) -> Observation:
    plan = Memory(predicted_peak_bytes=peak, temp_bytes=0)
    return Observation("f32[8]", 0.1, "digest", plan, None, "f32[8]", errors, bound, None)


def float64(max_rel: float | None, **more: int) -> Errors:
    return Errors("float64", max_rel, max_rel, **more)


def row(peak: int | None, max_rel: float = 1e-7, name: str = "bf16") -> VariantRow:
    return seen_row(name, "title", seen(float64(max_rel), peak))


@pytest.mark.parametrize(
    ("tolerance", "now", "before", "why"),
    [
        (None, float64(1e-4), float64(1e-7), ""),
        (None, float64(1e-2), float64(1e-7), "off by 1.0 %"),
        (0.1, float64(1e-2), float64(1e-7), ""),
        (None, float64(1e-2), float64(2e-2), ""),  # the function itself is as far off
        (0.1, float64(0.0, overflows=3), float64(0.0), "3 values are infinite"),
        (0.1, float64(0.0, nans=2), float64(0.0), "2 values are NaN"),
        (0.1, float64(0.0, nans=2), float64(0.0, nans=2), ""),
        (None, None, None, ""),
    ],
)
def test_results_are_wrong_beyond_the_tolerance_and_the_error_of_the_function_itself(
    tolerance, now, before, why
) -> None:
    found = wrongness(tolerance, seen(now), seen(before))

    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(("rounding_rel", "is_wrong"), [(None, True), (0.01, True), (0.05, False)])
def test_a_low_precision_may_be_as_far_off_as_rounding_the_inputs_makes_it(rounding_rel, is_wrong) -> None:
    """The gradient of a net with relu jumps where an input is rounded: 16 % in float64, and 16 % in bf16."""
    now = replace(seen(float64(0.16)), rounding_rel=rounding_rel)

    assert bool(wrongness(0.088, now, seen(float64(1e-6)))) == is_wrong


@pytest.mark.parametrize(
    ("ratio", "peak", "max_rel", "expected"),
    [
        (0.5, 1 * MIB, 1e-7, "saves 1.00 MiB and 5.00 µs (2.00×, 1.98 – 2.02); equal results"),
        (2.0, 3 * MIB, 1e-7, "costs 1.00 MiB and 10.0 µs (0.500×, 0.495 – 0.505); equal results"),
        (0.5, 3 * MIB, 1e-3, "saves 5.00 µs (2.00×, 1.98 – 2.02); costs 1.00 MiB; errors up to 1.0e-3"),
        (1.0, 1 * MIB, 1e-7, "saves 1.00 MiB; as fast as before; equal results"),
    ],
)
def test_a_sentence_says_gains_losses_and_errors(ratio, peak, max_rel, expected) -> None:
    found = add_comparison(row(peak, max_rel), by_hand(1, ratio), row(2 * MIB))

    assert found.sentence.startswith(expected)


def test_a_verdict_by_cpu_time_says_so() -> None:
    """The interval of the wall time holds 1: alone, it contradicts the verdict."""
    by_cpu = {"verdict": "slower", "why": "by CPU time, +9.0 % (+8.0 to +10 %)", "is_by_cpu_time": True}
    comparison = replace(by_hand(1, 1.05), low=0.98, high=1.12, **by_cpu)

    found = add_comparison(row(None), comparison, row(None))

    assert "by CPU time, +9.0 % (+8.0 to +10 %)" in found.sentence
    without = replace(row(None), comparison=comparison)
    assert "by CPU time" in experiment.contribution("donate", row(None), without).sentence
    assert "by CPU time" in in_words(comparison)


def test_an_unclear_verdict_claims_no_time() -> None:
    found = add_comparison(row(None), by_hand(1, 0.9, verdict="unclear", why="too few samples"), row(None))

    assert found.sentence == "time unclear: too few samples; equal results"


def test_a_side_that_failed_while_it_was_timed_is_a_failed_row() -> None:
    failure = Failure("out_of_memory", "rounds", "no memory left")

    found = add_comparison(row(None), by_hand(1, None, failure=failure), row(None))

    assert (found.status, found.reason) == ("failed", "out of memory in rounds: no memory left")


def test_other_dtypes_of_outputs_are_told_by_the_errors_and_not_by_the_comparison() -> None:
    remark = Remark("outputs-differ", "error", "bf16 gives another result")

    found = add_comparison(row(None), by_hand(1, 0.5, remarks=(remark,)), row(None))

    assert found.comparison is not None
    assert found.comparison.remarks == ()


def test_a_result_that_differs_and_has_no_errors_to_be_judged_by_is_wrong() -> None:
    wrong = Numerics("baseline", agrees=False, why="the output is f32[3] where the reference is f32[4]")

    found = add_comparison(replace(row(None), errors=None), by_hand(1, 0.5, numerics=wrong), row(None))

    assert (found.status, found.reason, found.comparison) == ("wrong_result", wrong.why, None)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(2.0, "saves 10.0 µs (9.80 – 10.2 µs)"), (0.5, "costs 5.00 µs (4.95 – 5.05 µs)"), (1.0, "makes no difference")],
)
def test_what_is_slower_without_a_variant_is_what_the_variant_saves(ratio, expected) -> None:
    without = replace(row(3 * MIB), comparison=by_hand(1, ratio))

    found = experiment.contribution("donate", row(1 * MIB), without)

    assert found.sentence == f"{expected}; saves 2.00 MiB"
    assert found.saved_bytes == 2 * MIB


def test_a_contribution_that_was_not_measured_has_no_number() -> None:
    found = experiment.contribution("f16", row(1 * MIB), None)

    assert (found.saved_s, found.saved_bytes, found.sentence) == (None, None, "the others cannot be on without it")
