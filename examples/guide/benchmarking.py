"""Chapter 10: is it faster, and is it right?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from guide_page import TIME_S, section

import benchax


def power(x):
    return jnp.sum(x**2)


def times(x):
    return jnp.sum(x * x)


@section("10. Benchmarking: is it faster?", power, times)
def is_it_faster() -> None:
    """*"Validate speedups with benchmarks."*

    If you divide the means of two loops, one after the other, a busy machine gives you a speedup by chance. Here, both
    run alternately in the same processes, and the verdict says how certain it is. The second pair shows two ways to
    write the same function.
    """

    x = jnp.ones((1000, 1000))
    both = {"naive": power, "optimized": jax.jit(power)}
    print(benchax.compare(both, x, jit=False, max_time_s=TIME_S))
    print()
    print(benchax.compare({"x ** 2": power, "x * x": times}, x, max_time_s=TIME_S))


def row_sums(x):
    return (x @ jnp.ones((64, 64))).sum(axis=1)


@section("10. Benchmarking: is it right?", row_sums)
def is_it_right() -> None:
    """A wrong result can be the fastest one. So every measurement compares the result with the eager function's result.

    Compilers have bugs, too. In jaxlib 0.10.2, XLA for CPUs compiles `row_sums` into a program whose sums are wrong
    from some number of rows on. If the table says *identical*, your version doesn't have this bug.
    """
    print(benchax.bench(row_sums, "f32[256,64]", max_time_s=0.5))
