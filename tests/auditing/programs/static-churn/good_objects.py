# runs
from functools import partial

import jax
import jax.numpy as jnp


class Algorithm:
    @partial(jax.jit, static_argnames="self")
    def ask(self, x):
        return self.change(x)


class Doubling(Algorithm):
    def change(self, x):
        return 2 * x


class Squashing(Algorithm):
    def change(self, x):
        return jnp.tanh(x)


class Sorting(Algorithm):
    def change(self, x):
        return jnp.sort(x) ** 2


x = jnp.arange(100.0)
for algorithm in (Doubling(), Squashing(), Sorting()):
    for _ in range(25):
        x = algorithm.ask(x)
