"""`watching/signatures.py`: the parts of a pytree besides its arrays."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from benchax.watching.signatures import MOST, attributes

Pair = namedtuple("Pair", "mean, name")


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    weight: Any
    bias: Any
    activation: str = "relu"


def test_whatever_is_no_array_has_its_path() -> None:
    value = {"layers": [Layer(jnp.ones(3), None)], "state": Pair(jnp.ones(2), "adam"), "rate": 0.5}

    assert attributes(value, "model") == {
        "model['layers'][0].bias": None,
        "model['layers'][0].activation": "relu",
        "model['state'].name": "adam",
        "model['rate']": 0.5,
    }
    assert attributes(None, "mask") == {"mask": None}
    assert attributes(jnp.ones(3), "x") == {}


def test_an_object_that_holds_itself_ends_and_a_huge_one_is_cut_off() -> None:
    layer = Layer(jnp.ones(3), 1)
    layer.bias = layer

    assert attributes(layer, "m") == {"m.activation": "relu"}
    assert len(attributes(list(range(10 * MOST)), "x")) == MOST
