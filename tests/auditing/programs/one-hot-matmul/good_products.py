"""Programs without the pitfall."""

import jax
import jax.numpy as jnp
import numpy as np

INDEX, TABLE = np.arange(256), np.ones((4096, 16), np.float32)
MEMBERS = np.arange(4096) * 3


def index(i=INDEX, table=TABLE):
    return table[i].sum()


def of_one_row(i=INDEX, table=TABLE):
    return jnp.where(jnp.arange(4096) == 3, 1.0, 0.0) @ table


def not_multiplied(i=INDEX, table=TABLE):
    return (jax.nn.one_hot(i, 4096) * 2).sum() + table.sum()


def less_something_else(i=INDEX, table=TABLE):
    return (jax.nn.one_hot(i, 4096) - table.T[:1]) @ table


def compared_with_other_numbers(i=INDEX, table=TABLE, members=MEMBERS):
    return (i[:, None] == members).astype(table.dtype) @ table


def small(i=INDEX, table="f32[10,16]"):
    return jax.nn.one_hot(i, 10) @ table


def a_number_in_the_first_place(x="f32[1024,512]", w="f32[512,64]"):
    return (1.0 + x) @ w
