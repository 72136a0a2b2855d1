"""Which arguments hold the batch: as given, or guessed from the shapes of the outputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from labs_by_hand import ScriptedLab

from benchax.case import make_case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.batches import CutsBatch, find_batch
from benchax.experiments.experiment import run_experiment
from benchax.experiments.variants import VARIANTS
from benchax.measuring.inputs import make_inputs


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
        ("n", "batch='n': 'n' is no batch"),
    ],
)
def test_what_cannot_be_the_batch_is_refused(given: str, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        found(lambda x, w, n: x @ w * n, "f32[64,32]", "f32[32,16]", 2.0, given=given)

    assert error.value.problem == problem


def test_without_rows_there_is_no_batch() -> None:
    with pytest.raises(NotAvailable, match="no argument is a batch"):
        found(jnp.sin, "f32[]")


def test_an_experiment_that_takes_no_batch_apart_refuses_one() -> None:
    with pytest.raises(UsageError) as error:
        run_experiment(make_case(matmul, ("f32[4,4]", "f32[4,4]")), ["bf16"], ScriptedLab(), {"batch": "x"})

    assert error.value.problem == "batch='x' is given, and no variant that is tried takes a batch apart"
    assert set(error.value.expected.removeprefix("one of: ").split(", ")) == {
        name for name, variant in VARIANTS.items() if isinstance(variant, CutsBatch)
    }
