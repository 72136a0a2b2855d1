"""Wrong results are noticed before anything is timed."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import stdtr

from benchax.errors import NotMeasured
from benchax.measuring.record import Notes
from benchax.measuring.verification import (
    Rounding,
    RoundingSpread,
    _factor,
    _independent,
    judge,
    trace_call,
    verify,
)
from benchax.numerics import compare_leaves


def is_traced(x):
    return isinstance(x, jax.core.Tracer)


COMPILED = jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((4,), jnp.float32)).compile()


@pytest.mark.parametrize("mode", ["eager", "float64"])
def test_a_function_that_computes_something_else_when_compiled_disagrees_with_numbers(mode, subject):
    """In float64 too: that reference is made of the traced function, which here is the wrong one."""
    numerics = verify(subject(lambda x: x + 1 if is_traced(x) else x, jnp.ones(4)), mode)

    assert (numerics.agrees, numerics.reference) == (False, "eager")
    assert numerics.max_abs == 1.0
    assert "2" in numerics.why


def test_float64_shows_the_error_of_the_precision(subject):
    numerics = verify(subject(lambda x: jnp.cumsum(x * 0.1), "f32[1000]"), "float64")

    assert numerics.reference == "float64"
    assert numerics.agrees
    assert 0 < numerics.max_rel < 1e-5
    assert not jax.config.jax_enable_x64


def test_float64_finds_a_result_that_f16_ruins(subject):
    """Cubes of a hundred and more are beyond its range."""
    numerics = verify(subject(lambda x: (x * 100) ** 3, "f16[1000]"), "float64")

    assert not numerics.agrees


@pytest.mark.parametrize(
    ("fn", "of_the_case", "mode", "why"),
    [
        (lambda x: x, {"jit": False}, "eager", "it is the eager function that others are compared with"),
        (lambda x: None, {}, "eager", "it returns nothing, so there is nothing to check"),
        (COMPILED, {}, "eager", "there is no eager function behind it"),
        (
            lambda x: x if is_traced(x) else 1 / 0,
            {},
            "eager",
            r"the eager call failed \(ZeroDivisionError: division by zero\)",
        ),
    ],
)
def test_what_cannot_be_compared_says_why(fn, of_the_case, mode, why, subject):
    made = subject(fn, "f32[4]", **of_the_case)

    with pytest.raises(NotMeasured, match=why):
        verify(made, mode)


def test_wrong_reductions_of_xla_are_noticed(bench):
    """XLA:CPU of jaxlib 0.10.2 returns -inf or 1e36 for this; a version that is right must not be accused."""
    w = jnp.full((256, 256), 0.01)
    x = jnp.ones((256, 256))
    outputs = [float(jax.jit(lambda x: (x @ w).max())(x)) for _ in range(3)]
    is_wrong_here = any(abs(value - 2.56) > 0.01 for value in outputs)

    measurement = bench(lambda x: (x @ w).max(), x)

    said = [r for r in measurement.remarks if r.code == "wrong-result"]
    assert bool(said) == (not measurement.numerics.agrees)
    assert measurement.numerics.agrees or is_wrong_here
    if is_wrong_here and all(abs(value - 2.56) > 0.01 for value in outputs):
        assert "differs from the eager one" in said[0].message
        assert said[0].severity == "error"


def test_what_rounding_alone_decides_is_not_measured_and_said(bench):
    def chaotic(x):
        x = x * (1 + 1e-6 * is_traced(x))
        return jax.lax.fori_loop(0, 200, lambda i, x: 3.99 * x * (1 - x), x)

    measurement = bench(chaotic, jnp.array([0.3, 0.41, 0.77]))

    (why,) = [absent.why for absent in measurement.not_measured if absent.what == "numerics"]
    (said,) = [remark for remark in measurement.remarks if remark.code == "not-verified"]
    assert measurement.numerics is None
    assert "by as much by rounding alone" in why
    assert said.severity == "warning"
    assert why in said.message


def test_where_a_call_has_effects_its_rounding_is_not_known(subject):
    """Half of the digits must agree; a smaller difference is no verdict."""

    def noted(factor):
        def function(x):
            y = jax.experimental.io_callback(lambda y: y, x, x, ordered=True)
            return y * factor if is_traced(x) else y

        return function

    notes = Notes()
    with pytest.raises(NotMeasured, match="what rounding does is not known: io_callback runs only as it stands"):
        verify(subject(noted(1.0001), jnp.arange(1.0, 5.0)), "eager", notes=notes)
    assert "what rounding does is not known" in notes.undecided
    with pytest.raises(NotMeasured, match="it cannot be evaluated in float64: io_callback runs only as it stands"):
        verify(subject(noted(1.0), jnp.arange(1.0, 5.0)), "float64")
    assert not verify(subject(noted(1.1), jnp.arange(1.0, 5.0)), "eager").agrees


# ---- what rounding does ------------------------------------------------------------------------------------------

BF16 = jnp.bfloat16


def runs(subject: Any, fn: Any, *inputs: Any, **how: Any) -> np.ndarray:
    call = trace_call(subject(fn, *inputs))
    return np.asarray([np.asarray(Rounding(seed, **how).run(call)[0], np.float64) for seed in range(8)])


def test_narrow_results_are_rounded_to_a_neighbour_in_proportion_and_exact_ones_are_not(subject: Any) -> None:
    exact = runs(subject, lambda x: x * 2, jnp.arange(1, 9).astype(BF16))
    found = runs(subject, lambda x: x * jnp.asarray(1 + 2**-7, BF16), jnp.full(4000, 1.125, BF16))

    assert (exact == 2 * np.arange(1, 9)).all()
    assert set(np.unique(found)) == {145 / 128, 146 / 128}
    assert found.mean() == pytest.approx(1.125 * (1 + 2**-7), abs=2e-4)


def test_sums_that_cancel_are_off_by_what_was_summed(subject: Any) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(0, 1e4, 1000), jnp.float32)

    found = runs(subject, lambda x: jnp.sum(jnp.concatenate([x, -x])), x)

    assert 1e-4 < found.std() < 10


@pytest.mark.slow
def test_signs_of_eigenvectors_are_free_and_a_product_that_needs_none_is_not(subject: Any) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 6)), jnp.float32)

    vectors = runs(subject, lambda x: jnp.linalg.svd(x)[0], x, free_signs=True)
    whole = runs(subject, lambda x: jnp.linalg.pinv(x), x, free_signs=True)

    assert vectors.std(0).max() > 0.1
    assert whole.std(0).max() < 1e-3 * np.abs(whole).max()


def test_noise_in_a_loop_differs_from_iteration_to_iteration(subject: Any) -> None:
    """The same error in each of 1000 steps would be 1000 errors in the end, not 30."""

    def walk(x: Any) -> Any:
        return jax.lax.fori_loop(0, 1000, lambda i, y: y * 1.0001, x)

    found = runs(subject, walk, jnp.ones(50))

    ulps = found.std(0).max() / found.mean() / np.finfo(np.float32).eps
    assert 10 < ulps < 400


@pytest.mark.parametrize("count", [4, 8])
def test_one_number_may_be_off_as_far_as_student_allows_once_in_100_000_times(count: int) -> None:
    """With 4 runs of a scalar the factor was 22 instead of 68."""
    factor = _factor([np.asarray([float(i)]) for i in range(count)])

    t = factor / math.sqrt(1 + 1 / count)
    assert 2 * stdtr(count - 1, -t) == pytest.approx(1e-5, rel=1e-6)


def test_many_numbers_may_be_off_as_far_as_drawn_ones_are() -> None:
    rng = np.random.default_rng(0)
    runs = list(rng.normal(size=(8, 10_000)))
    m = _independent(runs)
    drawn = (rng.chisquare(m, 1_000_000) / m) / (rng.chisquare(7 * m, 1_000_000) / (7 * m))

    assert _factor(runs) ** 2 / (1 + 1 / 8) == pytest.approx(np.quantile(drawn, 1 - 1e-5), rel=0.02)


def test_a_number_that_four_runs_explain_agrees() -> None:
    reference = np.asarray(1.0)
    runs = [np.asarray(1 + step * 1e-5) for step in (-1, -0.4, 0.3, 1.1)]
    (leaf,) = compare_leaves(np.asarray(1 + 40e-5), reference, against="eager", allowed=lambda dtype: 1e-9)

    assert judge(leaf, RoundingSpread(runs)).numerics.agrees
    (wrong,) = compare_leaves(np.asarray(1 + 120e-5), reference, against="eager", allowed=lambda dtype: 1e-9)
    found = judge(wrong, RoundingSpread(runs))
    assert (found.numerics.agrees, found.undecided) == (False, "")


def test_independent_elements_are_counted_and_a_common_factor_is_one() -> None:
    rng = np.random.default_rng(0)
    apart = [rng.normal(size=1000) for _ in range(8)]
    together = [rng.normal() * np.ones(1000) for _ in range(8)]

    assert _independent(apart) > 100
    assert _independent(together) == pytest.approx(1)
