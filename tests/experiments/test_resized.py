"""Inputs of other sizes hold the values that were given, and no others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchax.case import make_case
from benchax.experiments.parsing import CommonAxis
from benchax.experiments.sweeping import Batched, Resized, With, close_over_static
from benchax.measuring.inputs import make_inputs

X = jnp.arange(6.0).reshape(2, 3)


def test_an_axis_is_cropped_repeated_and_padded() -> None:
    case = make_case(lambda x: x, (X,))

    assert Resized(case, 0, (CommonAxis(0, 1),), 2)()[0][0].tolist() == [[0, 1], [3, 4]]
    assert Resized(case, 0, (CommonAxis(0, 0),), 3)()[0][0].tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert Resized(case, 0, (CommonAxis(0, 1),), 2, 4)()[0][0].tolist() == [[0, 1, 0, 0], [3, 4, 0, 0]]


def test_examples_of_a_batch_are_alike_and_different() -> None:
    case = make_case(lambda x, w, n: x, (X, X, 3), static=("n",))

    (x, w), _ = Batched(case, 0, (0,), 4)()

    assert x.shape == (4, 2, 3)
    assert (x[0] == X).all()
    assert (np.sort(x.reshape(4, -1)) == np.arange(6)).all()
    assert not (x[0] == x[1]).all()
    assert (w == X).all()
    assert Batched(case, 0, (0,), 4, is_spread=True)()[0][1].shape == (4, 2, 3)


def test_keys_of_a_batch_differ() -> None:
    (keys,), _ = Batched(make_case(lambda key: key, ("key",)), 0, (0,), 5)()

    assert keys.shape == (5,)
    assert len(np.unique(jax.random.key_data(keys), axis=0)) == 5


def test_static_arguments_are_bound_and_names_kept() -> None:
    case = make_case(lambda x, n, *, w: x * n + w, (X, 3), {"w": X}, static=("n",))

    assert (close_over_static(case, make_inputs(case, 0))(X, 2 * X) == 5 * X).all()


def test_one_argument_has_another_value() -> None:
    case = make_case(lambda x, n, *, w: x, (1, 2), {"w": 3})

    assert With(case, 1, 9)() == ((1, 9), {"w": 3})
    assert With(case, "w", 9)() == ((1, 2), {"w": 9})
