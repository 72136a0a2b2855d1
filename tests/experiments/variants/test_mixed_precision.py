"""Products in bf16 and f16, and everything else in float32; on programs of other authors, too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import value_and_grad

from benchax.case import make_case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.variants.mixed_precision import MEMBERS

BF16, F16 = MEMBERS


def changed(variant: Any, fn: Any, *args: Any, given: Any = None) -> Any:
    return variant.change(make_case(fn, args), given).case.fn


def random(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float32)


def loss(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ params["in"]) @ params["out"] - y) ** 2)


def sgd_step(params: Any, x: Any, y: Any) -> Any:
    value, grads = value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def step_with_metrics(params: Any, x: Any, y: Any) -> Any:
    def with_metrics(params: Any) -> Any:
        found = loss(params, x, y)
        return found, {"loss": found}

    grads, metrics = jax.grad(with_metrics, has_aux=True)(params)
    return grads, metrics


PARAMS = {"in": random(16, 32), "out": random(32, 4)}
DATA = random(64, 16), random(64, 4)


@pytest.mark.slow
@pytest.mark.parametrize("variant", MEMBERS, ids=lambda variant: variant.name)
@pytest.mark.parametrize("fn", [loss, sgd_step, step_with_metrics])
def test_products_are_rounded_and_all_that_comes_out_is_float32(variant: Any, fn: Any) -> None:
    ours = changed(variant, fn, PARAMS, *DATA)

    text = str(jax.make_jaxpr(ours)(PARAMS, *DATA))
    assert text.count("preferred_element_type=float32") == text.count("dot_general[") > 1
    assert ("bf16[" if variant is BF16 else "f16[") in text
    found, expected = ours(PARAMS, *DATA), fn(PARAMS, *DATA)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype(jnp.float32)}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.05, atol=0.05), found, expected)


def test_products_in_loops_are_reached() -> None:
    def recurrent(w: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), xs[0], xs)[0]

    args = random(8, 8), random(5, 3, 8)

    ours = changed(BF16, recurrent, *args)

    assert "bf16[8,8]" in str(jax.make_jaxpr(ours)(*args))
    np.testing.assert_allclose(ours(*args), recurrent(*args), atol=0.05)


def tiny_step(w: Any, x: Any) -> Any:
    """Its cotangents are below what f16 can hold."""
    return jax.grad(lambda w: 1e-7 * jnp.mean(x @ w))(w)


def test_the_loss_is_scaled_where_f16_would_lose_its_gradients() -> None:
    args = random(4, 4), random(4, 4)

    usual, unscaled = changed(F16, tiny_step, *args), changed(F16, tiny_step, *args, given=1)

    np.testing.assert_allclose(usual(*args), tiny_step(*args), rtol=0.05)
    np.testing.assert_array_equal(unscaled(*args), jnp.zeros((4, 4)))
    assert jax.value_and_grad is value_and_grad  # put back


@pytest.mark.slow
def test_a_step_of_equinox_and_optax_keeps_its_parameters_in_float32() -> None:
    eqx, optax = pytest.importorskip("equinox"), pytest.importorskip("optax")
    model = eqx.nn.MLP(4, 1, 16, 2, key=jax.random.key(0))
    optimizer = optax.adam(1e-3)
    arrays, static = eqx.partition(model, eqx.is_array)
    state = optimizer.init(arrays)

    def step(arrays: Any, state: Any, x: Any, y: Any) -> Any:
        @eqx.filter_value_and_grad
        def of(model: Any) -> Any:
            return jnp.mean((jax.vmap(model)(x) - y) ** 2)

        value, grads = of(eqx.combine(arrays, static))
        updates, state = optimizer.update(grads, state)
        return eqx.apply_updates(arrays, updates), state, value

    args = arrays, state, random(32, 4), random(32, 1)

    found = F16.change(make_case(step, args))

    assert dict(found.facts(*[type("Seen", (), {"outputs": ""})] * 2, None))["loss scale"] == "1024"
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.05, atol=0.01), found.case.fn(*args), step(*args))


@pytest.mark.parametrize("given", ["0", "3", "x", "-2", "2.0", str(2**30)])
def test_what_is_no_power_of_two_is_no_scale(given: str) -> None:
    with pytest.raises(UsageError, match="mixed-f16=") as error:
        F16.change(make_case(loss, (PARAMS, *DATA)), given)

    assert error.value.expected == "a power of two up to 16777216: the loss scale, 1 for none"


def test_without_products_there_is_nothing_to_round() -> None:
    with pytest.raises(NotAvailable, match="no matrix product and no convolution"):
        BF16.change(make_case(jnp.tanh, ("f32[4]",)))
    with pytest.raises(NotAvailable, match="no matrix product and no convolution"):
        BF16.change(make_case(jnp.matmul, ("bf16[4,4]", "bf16[4,4]")))
