"""Steps under the jits of equinox and flax.nnx, as functions of arrays alone."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from benchax.case import Case, make_case
from benchax.errors import NotAvailable
from benchax.experiments.functions import argument_name
from benchax.experiments.pure_calls import make_pure
from benchax.experiments.variants import VARIANTS
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of


def call(case: Case) -> Any:
    inputs = make_inputs(case, 0)
    args, kwargs = inputs.renewed()
    return program_of(case, inputs).call(*args, **kwargs)


def equinox_step(donate: str = "none") -> Case:
    model = eqx.nn.MLP(3, 3, 8, 1, key=jax.random.key(0))

    def step(model: Any, x: jax.Array, scale: float) -> Any:
        gradient = eqx.filter_grad(lambda m: jnp.sum(jax.vmap(m)(x) ** 2))(model)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -scale * g, gradient))

    return make_case(eqx.filter_jit(step, donate=donate), (model, "f32[4,3]", 0.1))  # pyright: ignore[reportCallIssue, reportArgumentType]


def nnx_step(**options: Any) -> Case:
    model = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    def step(model: Any, optimizer: Any, x: jax.Array) -> jax.Array:
        loss, gradient = nnx.value_and_grad(lambda m: jnp.sum(m(x) ** 2))(model)
        optimizer.update(model, gradient)
        return loss

    return make_case(nnx.jit(step, **options), (model, optimizer, "f32[4,3]"))


def test_a_step_of_equinox_computes_the_same_without_its_jit() -> None:
    case = equinox_step()

    pure, wrapper = make_pure(case, 0)

    assert wrapper == "equinox.filter_jit"
    assert argument_name(pure.fn, 0) == "model"
    expected, found = (jax.tree.leaves(eqx.filter(call(one), eqx.is_array)) for one in (case, pure))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), expected, found)


def test_a_step_of_nnx_returns_the_state_that_it_changes() -> None:
    pure, wrapper = make_pure(nnx_step(), 0)

    outcome = call(pure)

    model, optimizer, x = make_inputs(nnx_step(), 0).args
    loss = nnx_step().fn(model, optimizer, x)
    assert wrapper == "flax.nnx.jit"
    np.testing.assert_allclose(outcome.outputs[0], loss, rtol=1e-6)
    kernel = next(value for name, value in outcome.state.items() if name.endswith(".kernel"))
    np.testing.assert_allclose(kernel, model.kernel[...], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("make_step", [equinox_step, nnx_step])
@pytest.mark.parametrize("name", ["donate", "bf16", "mixed-bf16", "mixed-f16"])
def test_variants_are_made_of_steps_under_a_filtering_jit(make_step: Any, name: str) -> None:
    pure, _ = make_pure(make_step(), 0)

    changed = VARIANTS[name].change(pure, None, 0)  # pyright: ignore[reportAttributeAccessIssue]

    assert jax.tree.structure(call(changed.case)) == jax.tree.structure(call(pure))


@pytest.mark.parametrize("make_step", [equinox_step, nnx_step])
def test_checkpoints_reach_the_gradients_of_a_step_under_a_filtering_jit(make_step: Any) -> None:
    pure, _ = make_pure(make_step(), 0)

    changed = VARIANTS["remat"].change(pure, None, 0)  # pyright: ignore[reportAttributeAccessIssue]

    made = make_inputs(changed.case, 0)
    traced = program_of(changed.case).call.trace(*made.args, **made.kwargs)  # pyright: ignore[reportFunctionMemberAccess]
    assert "checkpoint" in str(traced.jaxpr) or "remat" in str(traced.jaxpr)


def test_a_pure_step_goes_to_other_processes() -> None:
    pure, _ = make_pure(equinox_step(), 0)

    again = pickle.loads(cloudpickle.dumps(pure))

    # The activation inside the returned module is another object there.
    jax.tree.map(np.testing.assert_array_equal, *(jax.tree.leaves(call(one)) for one in (again, pure)))


@pytest.mark.parametrize(
    ("case", "donated"),
    [
        (equinox_step("all"), (0, 1)),
        (equinox_step("all-except-first"), (1,)),
        (equinox_step(), ()),
        (nnx_step(donate_argnums=(0, 1)), (0,)),
        (nnx_step(), ()),
    ],
)
def test_what_the_wrapper_donates_stays_donated(case: Case, donated: tuple[int, ...]) -> None:
    pure, _ = make_pure(case, 0)

    assert tuple(i for i in pure.donate if jax.tree.leaves(make_inputs(pure, 0).args[int(i)])) == donated


def test_a_donation_that_cannot_be_told_is_refused() -> None:
    case = nnx_step(donate_argnums=(0,))  # the model, and not the state of its optimizer

    with pytest.raises(NotAvailable, match="donates some of its arguments"):
        make_pure(case, 0)


def test_a_function_that_jax_jits_stays_as_it_is() -> None:
    case = make_case(jax.jit(jnp.sort), ("f32[3]",))

    assert make_pure(case, 0) == (case, "")
