"""Modes: a loss, its gradient, or both, as cases of their own; and which keyword is the function's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import benchax
from benchax.case import benchmark, make_case
from benchax.errors import UsageError

SHORT: dict[str, Any] = {
    "timer": "wall", "max_time_s": 0.02, "min_time_s": 0.01, "memory": False, "store": "off",
}  # fmt: skip


def loss(x: Any, y: Any) -> Any:
    return ((x - y) ** 2).sum()


@pytest.mark.parametrize(
    ("mode", "same_as"),
    [("forward", loss), ("grad", jax.grad(loss)), ("forward_and_grad", jax.value_and_grad(loss))],
)
def test_a_mode_is_what_jax_makes_of_the_loss(mode: str, same_as: Any) -> None:
    x, y = jnp.arange(4.0), jnp.ones(4)

    case = make_case(loss, (x, y), mode=mode)

    jax.tree.map(np.testing.assert_array_equal, case.fn(x, y), same_as(x, y))


def test_the_gradient_is_measured_checked_and_has_an_identity_of_its_own() -> None:
    forward, grad = (benchax.bench(loss, "f32[64]", "f32[64]", mode=mode, **SHORT) for mode in ("forward", "grad"))

    assert (forward.case.label, grad.case.label) == ("loss", "loss[mode=grad]")
    assert grad.failure is None
    assert grad.numerics is not None
    assert grad.numerics.agrees


def test_the_gradient_is_with_respect_to_the_first_floats_that_are_not_static() -> None:
    def scaled(key: Any, factor: float, x: Any) -> Any:
        return factor * x.sum()

    case = make_case(scaled, (jnp.arange(2), 3.0, jnp.ones(2)), static=1, mode="grad")

    np.testing.assert_array_equal(jax.jit(case.fn, static_argnums=1)(jnp.arange(2), 3.0, jnp.ones(2)), [3.0, 3.0])


def test_a_jitted_loss_has_a_gradient_too() -> None:
    m = benchax.bench(jax.jit(loss), "f32[8]", "f32[8]", mode="grad", **SHORT)

    assert (m.case.label, m.failure) == ("loss[mode=grad]", None)


@pytest.mark.parametrize("fn", [lambda x: 2 * x, lambda n: n.sum()], ids=["no scalar", "no floats"])
def test_what_is_no_loss_fails_while_it_is_traced(fn: Any) -> None:
    m = benchax.bench(fn, "i32[8]" if fn(np.ones(2)).shape == () else "f32[8]", mode="grad", **SHORT)

    assert m.failure is not None
    assert m.failure.stage == "trace"
    assert "gradient" in m.failure.message.lower()


def test_a_mode_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"mode='gradd' cannot be") as error:
        benchax.bench(loss, "f32[8]", "f32[8]", mode="gradd")

    assert "'grad'" in str(error.value)


def test_a_compiled_function_has_no_gradient() -> None:
    compiled = jax.jit(jnp.sum).lower(jnp.ones(8)).compile()

    with pytest.raises(UsageError, match="compiled already"):
        benchax.bench(compiled, jnp.ones(8), mode="grad")


def test_a_function_keeps_its_own_mode() -> None:
    m = benchax.bench(jnp.pad, "f32[4]", 1, mode="edge", static=(1, "mode"), **SHORT)

    assert m.failure is None
    assert m.case.label == "pad"


def test_the_cases_of_a_benchmark_have_its_mode_and_are_eager_beside_it() -> None:
    made = benchmark(loss, args=lambda n: (f"f32[{n}]",) * 2, n=[2, 3], mode="grad", jit=False)

    assert [case.id.label for case in made.cases()] == ["loss[n=2, mode=grad] eager", "loss[n=3, mode=grad] eager"]


def test_a_parameter_may_be_called_mode_or_work() -> None:
    made = benchmark(loss, args=lambda mode, work: (mode, work), mode=["same", "full"], work=[1])

    assert [case.id.params for case in made.cases()] == [
        (("mode", "same"), ("work", 1)),
        (("mode", "full"), ("work", 1)),
    ]
