"""Cases reopened: under a jit, and two side by side on the same arguments."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
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
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.experiment import with_eager
from benchax.experiments.functions import argument_name, converted, find_batch, make_pure, plain
from benchax.experiments.variants import VARIANTS
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of


@partial(jax.jit, static_argnames="axis", donate_argnums=0)
def jitted(state, x, axis=0):
    return state + x.sum(axis)


def call(case: Case) -> Any:
    inputs = make_inputs(case, 0)
    args, kwargs = inputs.renewed()
    return program_of(case, inputs).call(*args, **kwargs)


def test_a_jitted_function_is_opened_with_what_it_declares() -> None:
    opened = plain(make_case(jitted, ("f32[3]", "f32[3,4]"), {"axis": 1}))

    assert (opened.fn, opened.static, opened.donate) == (jitted.__wrapped__, ("axis",), (0,))


def test_a_jitted_function_in_a_partial_is_opened_too() -> None:
    case = make_case(partial(jitted, axis=1), ("f32[3]", "f32[3,4]"))

    (eager, _), opened = with_eager(case), plain(case)

    assert eager.fn.func is opened.fn.func is jitted.__wrapped__
    assert eager.fn.keywords == {"axis": 1}


def test_what_has_no_eager_form_is_not_paired_with_itself() -> None:
    compiled = make_case(jax.jit(lambda x: x).lower(jnp.ones(3)).compile(), ("f32[3]",))

    assert with_eager(compiled) == (compiled,)


def test_what_was_compiled_cannot_be_opened() -> None:
    compiled = jax.jit(lambda x: x).lower(jnp.ones(3)).compile()

    with pytest.raises(NotAvailable, match="cannot be reached"):
        plain(make_case(compiled, ("f32[3]",)))


def test_converted_inputs_are_those_of_the_case_in_another_precision() -> None:
    case = make_case(jnp.add, ("f32[3]", "i32[3]"))
    original = make_inputs(case, 7).args

    (floats, integers), _ = converted(case, 7, "bfloat16")

    np.testing.assert_array_equal(floats, original[0].astype("bfloat16"))
    assert integers.dtype == jnp.int32


# ---- Which arguments hold the batch: as given, or guessed from the shapes of the outputs ----


def found(fn: Any, *args: Any, given: str = "", without: tuple[int | str, ...] = (), **kwargs: Any) -> Any:
    case = make_case(fn, args, kwargs)
    return find_batch(case, make_inputs(case, 0), given, without=without)


def matmul(x: Any, w: Any) -> Any:
    return x @ w


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v


def loss(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ params["in"]) @ params["out"] - y) ** 2)


def sgd_step(params: Any, x: Any, y: Any) -> Any:
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def scores(params: Any, x: Any) -> Any:
    return params, x @ params["in"]


PARAMS = {"in": "f32[64,64]", "out": "f32[64,64]"}


@pytest.mark.parametrize(
    ("fn", "args", "names", "basis"),
    [
        (matmul, ("f32[64,32]", "f32[32,16]"), ("x",), "outputs"),
        (matmul, ("f32[32,32]", "f32[32,32]"), ("x",), "outputs"),
        (attention, ("f32[4,8,16]", "f32[4,8,16]", "f32[4,8,16]"), ("q", "k", "v"), "outputs"),
        (scores, (PARAMS, "f32[128,64]"), ("x",), "outputs"),
        (loss, (PARAMS, "f32[64,64]", "f32[64,64]"), ("x", "y"), "loss"),
        (sgd_step, (PARAMS, "f32[128,64]", "f32[128,64]"), ("x", "y"), "loss"),
        (lambda key, x: jax.random.uniform(key) * x, ("key", "f32[6]"), ("x",), "outputs"),
        (lambda w, x: x.no_such_thing, ("f32[8]", "f32[4]"), ("x",), "last"),
    ],
)
def test_a_guess_goes_by_the_shapes_of_the_outputs(fn: Any, args: Any, names: Any, basis: str) -> None:
    batch = found(fn, *args)

    assert (batch.names, batch.basis) == (names, basis)
    assert f"the {batch.rows} rows of {', '.join(names)}, guessed: " in batch.how


def test_arguments_by_name_and_static_ones_are_told_apart() -> None:
    def cropped(x: Any, n: int, *, y: Any, b: Any) -> Any:
        return x[:, :n] * y[:, :n]

    case = make_case(cropped, ("f32[8,4]", 3), {"y": "f32[8,4]", "b": "f32[8]"}, static=1)

    batch = find_batch(case, make_inputs(case, 0))

    assert batch.arguments == (0, "y")


def test_what_is_given_is_taken() -> None:
    batch = found(loss, PARAMS, "f32[64,64]", "f32[64,64]", given="x + y")

    assert (batch.arguments, batch.how) == ((1, 2), "the 64 rows of x, y, as given")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("z", "batch is given the argument 'z'"),
        ("x+w", "batch='x+w' names arguments with several numbers of rows: x has 64, w has 32"),
        ("n", "batch='n': 'n' isn't a batch"),
    ],
)
def test_what_cannot_be_the_batch_is_refused(given: str, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        found(lambda x, w, n: x @ w * n, "f32[64,32]", "f32[32,16]", 2.0, given=given)

    assert error.value.problem == problem


def test_without_rows_there_is_no_batch() -> None:
    with pytest.raises(NotAvailable, match="no argument is a batch"):
        found(jnp.sin, "f32[]")


# ---- Steps under the jits of equinox and flax.nnx, as functions of arrays alone ----


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
    ("make_step", "donated"),
    [
        (lambda: equinox_step("all"), (0, 1)),
        (lambda: equinox_step("all-except-first"), (1,)),
        (equinox_step, ()),
        (lambda: nnx_step(donate_argnums=(0, 1)), (0,)),
        (nnx_step, ()),
    ],
)
def test_what_the_wrapper_donates_stays_donated(make_step: Callable[[], Case], donated: tuple[int, ...]) -> None:
    pure, _ = make_pure(make_step(), 0)

    assert tuple(i for i in pure.donate if jax.tree.leaves(make_inputs(pure, 0).args[int(i)])) == donated


def test_a_donation_that_cannot_be_told_is_refused() -> None:
    case = nnx_step(donate_argnums=(0,))  # the model, and not the state of its optimizer

    with pytest.raises(NotAvailable, match="donates some of its arguments"):
        make_pure(case, 0)


def test_a_function_that_jax_jits_stays_as_it_is() -> None:
    case = make_case(jax.jit(jnp.sort), ("f32[3]",))

    assert make_pure(case, 0) == (case, "")
