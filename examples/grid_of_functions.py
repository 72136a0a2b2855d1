"""Functions × data with a time limit: jax-ml/jax issue 8599, written for benchax.

"We give it data and functions and a maximum timeout, it gives us the grid of results = function(data) and elapsed
times, and stops the functions if they run longer than the maximum timeout."

    python examples/grid_of_functions.py
    N_X='[8, 64, 512]' N_TRIALS=3 TIMEOUT_SECONDS=1 python examples/grid_of_functions.py
    benchax grid examples/grid_of_functions.py --plot grid.png

Needs pydantic-settings, which reads the environment.
"""

from __future__ import annotations

from time import perf_counter

import jax
import jax.numpy as jnp
from pydantic_settings import BaseSettings

import benchax


class Environment(BaseSettings):
    """Each may be set in the environment: N_TRIALS=3."""

    n_x: list[int] = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
    min_weight: float = -1.0
    max_weight: float = 1.0
    n_trials: int = 10
    timeout_seconds: float = 30.0
    seed: int = 42


env = Environment()


def f1(x: jax.Array) -> jax.Array:
    return x**2 - 1


def f2(x: jax.Array) -> jax.Array:
    return x / 2


def f3(x: jax.Array) -> jax.Array:
    return x**3 * jnp.sin(x)


# What `benchax grid` looks for: functions, data, and any setting of benchax.grid under its own name.
functions = [jax.jit(f) for f in (f1, f2, f3)]
data = env.n_x
axis = "n_x"
trials = env.n_trials
timeout_s = env.timeout_seconds
seed = env.seed
clip = (env.min_weight, env.max_weight)
nan_to_num = True


def make(key: jax.Array, n_x: int) -> jax.Array:
    """The input of one trial: the same for all functions, and the same again for the same seed."""
    return jax.random.normal(key, (n_x,))


def check(y: jax.Array, x: jax.Array) -> bool:
    """A result of another length is no weight for x."""
    return isinstance(y, jax.Array) and y.shape[0] == x.shape[0]


def benchmark() -> benchax.GridResult:
    return benchax.grid(
        functions, data, make=make, check=check, trials=trials, timeout_s=timeout_s, seed=seed, axis=axis,
        clip=clip, nan_to_num=nan_to_num, name="grid_of_functions",
    )  # fmt: skip


def check_as_asked(g: benchax.GridResult) -> None:
    """The assertions of the request."""
    for n_x in env.n_x:
        weights = g.stacked(n_x)  # the outputs side by side, and a last column of ones
        assert weights.shape == (n_x, len(functions) + 1)
    assert g.timings.shape == (len(functions), len(env.n_x), env.n_trials)
    assert (g.timings > 0).all()


def compiled_benchmark() -> None:
    """The loop over functions and repetitions compiled too: one jitted call for each size, clocks and limits inside."""
    benchmark_with_jit = benchax.compiled_grid(functions, repeats=env.n_trials, clip=clip, nan_to_num=nan_to_num)
    for n_x in env.n_x:
        x = make(jax.random.key(env.seed), n_x)
        print(benchmark_with_jit(x, timeout_s=timeout_s))


def benchmark_benchmark() -> None:
    """Two ways to benchmark, and how long it takes to find out how long the functions take."""
    g = benchmark()
    check_as_asked(g)
    print(g.to_pandas())
    print(g)
    begin = perf_counter()
    compiled_benchmark()
    print(f"benchax.compiled_grid, one jitted call for each size, took {perf_counter() - begin:.2f} seconds")
    print(f"benchax.grid, each cell in a worker that can be killed, took {g.elapsed_s:.2f} seconds")


if __name__ == "__main__":
    benchmark_benchmark()
