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

    There is no such limit in milliseconds. Compiling costs once and saves in each call, so what counts is the
    number of calls from which on it pays: the break-even.
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

    They do: each new shape or type of an argument is a new program. `benchax.watch()` names the line and the
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

    Padding trades programs for work on zeros. Whether it pays depends on how many sizes there are and how often
    each is called. The outputs of the useful part are compared, since padding is wrong for some functions: a
    mean, for one.
    """
    sizes = {"shapes": "x.0=1000,1300,2000"}
    print(benchax.experiment(values_above, "f32[2000,64]", variants=["shapes"], given=sizes, max_time_s=TIME_S))


@section("1. Compilation: the persistent cache")
def cache() -> None:
    """*"Enable the persistent compilation cache."*

    A start with an empty cache and one with a filled one, in pairs of new processes. JAX keeps only what took a
    second to compile, unless it is told otherwise: the row says whether this program would have been kept.
    """
    arguments = inputs_of(workloads.transformer)
    print(benchax.experiment(workloads.transformer, *arguments, variants=["cache"], max_time_s=TIME_S))


def turn(i, state):
    return jnp.sin(state) + i


@section("1. Compilation: loops", turn)
def loops() -> None:
    """*"Use jax.lax.fori_loop or scan in place of Python loops."*

    Under `jit` a Python loop is written out iteration by iteration, and each one is compiled: watch the column
    *compile*.
    """
    print(benchax.experiments.loops(turn, "f32[1000]", 50, max_time_s=TIME_S))
