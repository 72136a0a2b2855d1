"""Programs with the pitfall."""

import jax
import jax.numpy as jnp
import numpy as np

INDEX, TABLE = np.arange(256) * 7 % 4096, np.ones((4096, 16), np.float32)
MEMBERS = np.arange(4096)


def one_hot(i=INDEX, table=TABLE):
    return jnp.tanh(jax.nn.one_hot(i, 4096) @ table)  # expect: one-hot-matmul


def under_a_gradient(i=INDEX, table=TABLE):
    return jax.grad(lambda table: jnp.sum(jax.nn.one_hot(i, 4096) @ table))(table)  # expect: one-hot-matmul


def chosen(i=INDEX, table=TABLE):
    return jnp.where(i[:, None] == jnp.arange(4096), 1.0, 0.0) @ table  # expect: one-hot-matmul


def rows_of_an_identity(i=INDEX, table=TABLE):
    return jnp.eye(4096)[i] @ table  # expect: one-hot-matmul


def written(i=INDEX, table=TABLE):
    return jnp.zeros((256, 4096)).at[jnp.arange(256), i].set(1.0) @ table  # expect: one-hot-matmul


def transposed(i=INDEX, table=TABLE):
    return table.T @ jax.nn.one_hot(i, 4096).T  # expect: one-hot-matmul


def by_einsum(i=INDEX, table=TABLE):
    return jnp.einsum("bn,nd->bd", jax.nn.one_hot(i, 4096), table)  # expect: one-hot-matmul


def masked(i=INDEX, table=TABLE):
    return (jax.nn.one_hot(i, 4096) * (i > 0)[:, None]) @ table  # expect: one-hot-matmul


def difference(i=INDEX, table=TABLE):
    return (jax.nn.one_hot(i, 4096) - jax.nn.one_hot(i + 1, 4096)) @ table  # expect: one-hot-matmul


def compared_with_an_argument(i=INDEX, table=TABLE, members=MEMBERS):
    return ((i[:, None] == members).astype(table.dtype) @ table).sum()  # expect: one-hot-matmul


def in_a_loop(i=INDEX, table=TABLE):
    members = jnp.arange(4096)

    def add(total, i):
        return total + ((i[:, None] == members).astype(table.dtype) @ table).sum(), None  # expect: one-hot-matmul

    return jax.lax.scan(add, 0.0, i.reshape(1, 256))[0]
