"""Chapter 1: what compiling costs and brings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from guide_page import TIME_S, inputs_of, section

import benchax
from benchax import workloads


def many(x):
    for _ in range(100):
        x = jnp.sin(x) + jnp.cos(x)
    return x


def trivial(x):
    return x + 1


@section("1. Compilation: when to jit", many, trivial)
def when_to_jit() -> None:
    """*"JIT expensive computations (above 1 ms). Don't JIT trivial operations."*

    There is no such limit in milliseconds. Compiling costs time once and saves time in each call. So look at
    the break-even: how many calls make compiling pay.
    """
    for fn in (many, trivial):
        print(benchax.experiment(fn, "f32[1000]", jit=False, variants=["jit"], max_time_s=TIME_S))
        print()


@jax.jit
def mean_square(x):
    return jnp.mean(x * x)


@section("1. Compilation: what compiles again", mean_square)
def what_compiles_again() -> None:
    """*"Dynamic shapes cause recompilation."*

    They do: each new shape or type of an argument needs a new program. `benchax.watch()` names the line and the
    reason, and costs nothing on warm calls.
    """
    with benchax.watch() as found:
        for size in (100, 101, 102, 101):
            mean_square(jnp.ones(size))
    print(found)


def values_above(x):
    return jnp.tanh(x) * (x > 0.5)


@section("1. Compilation: fixed shapes with padding", values_above)
def padding() -> None:
    """*"Use fixed shapes with padding."*

    With padding, you need fewer programs, but you work on zeros. Whether this pays depends on how many sizes you have,
    and how often you call each one. Padding is wrong for some functions, such as a mean. So benchax compares the useful
    part of the outputs.
    """
    sizes = {"shapes": "x.0=1000,1300,2000"}
    print(benchax.experiment(values_above, "f32[2000,64]", variants=["shapes"], given=sizes, max_time_s=TIME_S))


@section("1. Compilation: the persistent cache")
def cache() -> None:
    """*"Enable the persistent compilation cache."*

    This compares a start with an empty cache and a start with a filled cache, in pairs of new processes. By default,
    JAX keeps only programs that took a second to compile. The row says whether it would have kept this program.
    """
    arguments = inputs_of(workloads.transformer)
    print(benchax.experiment(workloads.transformer, *arguments, variants=["cache"], max_time_s=TIME_S))


def turn(i, state):
    return jnp.sin(state) + i


@section("1. Compilation: loops", turn)
def loops() -> None:
    """*Use `jax.lax.fori_loop` or `scan` instead of a Python loop.*

    Under `jit`, a Python loop is unrolled, and XLA compiles each iteration. Look at the column *compile*.
    """
    print(benchax.experiments.loops(turn, "f32[1000]", 50, max_time_s=TIME_S))
