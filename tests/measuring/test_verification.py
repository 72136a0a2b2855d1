"""Wrong results are noticed before anything is timed."""

import jax
import jax.experimental
import jax.numpy as jnp
import pytest

from benchax.errors import NotMeasured
from benchax.measuring.record import Notes
from benchax.measuring.verification import verify


def is_traced(x):
    return isinstance(x, jax.core.Tracer)


COMPILED = jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((4,), jnp.float32)).compile()


def test_the_same_result_agrees(subject):
    numerics = verify(subject(lambda x: jnp.sin(x @ x), "f32[16,16]"), "eager")

    assert numerics.agrees
    assert numerics.reference == "eager"


def test_a_function_that_computes_something_else_when_compiled_disagrees_with_numbers(subject):
    numerics = verify(subject(lambda x: x + 1 if is_traced(x) else x, jnp.ones(4)), "eager")

    assert not numerics.agrees
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


def test_float64_includes_the_comparison_with_the_eager_result(subject):
    """Its reference is made of the traced function, which here is the wrong one."""
    numerics = verify(subject(lambda x: x + 1 if is_traced(x) else x, jnp.ones(4)), "float64")

    assert not numerics.agrees
    assert numerics.reference == "eager"


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
