"""The usual advice on fast JAX, each piece measured: writes docs/performance-guide.md.

    python examples/performance_guide.py                        # the page, in about ten minutes
    python examples/performance_guide.py --only "2. " --output vmap.md
    python examples/performance_guide.py --list

Every section is a function. The page shows its docstring, its code, and what that code has printed: there is no number
on the page that the page's own code did not write. Run it on your machine, for your numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from guide_page import main, section

import benchax
from benchax import workloads

PAGE = Path(__file__).parent.parent / "docs" / "performance-guide.md"
TIME_S = 20.0
"""Of each experiment: no further process is begun after this long."""

INTRODUCTION = """\
# The performance guide, measured

What guides to JAX advise, tried out. Each section gives a piece of advice as it is often read, the code that tries it,
and what that code printed. The numbers are of one machine, the one named above each table, and yours will differ:
`python examples/performance_guide.py` writes this page anew. Where the advice did not hold there, the table says so.

All code begins with `import benchax, jax, jax.numpy as jnp` and `from benchax import workloads`; `inputs_of(f)` gives
the inputs that a function of `benchax.workloads` brings along; `TIME_S` is 20 seconds.

Times are compared as [comparing](comparing.md) describes: in pairs, in fresh processes, each change confirmed by a
second measurement. What the tables of an experiment mean is told in [experiments](experiments.md).
"""


def inputs_of(workload: Callable[..., Any]) -> tuple[Any, ...]:
    """Those that a function of `benchax.workloads` brings along."""
    found = workloads.benchmark_of(workload)
    assert found is not None
    return next(iter(found.cases())).inputs()[0]


# ---- 1. Compilation ---------------------------------------------------------------------------------------------


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


# ---- 2. Vectorization -------------------------------------------------------------------------------------------


def example(x):
    return jnp.tanh(x).sum()


@section("2. Vectorization: vmap instead of a loop", example)
def vectorization() -> None:
    """*"Bad: a Python loop. Good: vmap. Best: jit + vmap. Order: jit(vmap(f)), not vmap(jit(f))."*

    `vmap(jit(f))` computes the same, but Python goes through `vmap` again in each call; `jit(vmap(f))` does so once.
    The knee is the batch size from which on larger ones bring hardly more examples per second.
    """
    given = {"vmap": "x=1,16,256"}
    print(benchax.experiment(example, "f32[1000]", variants=["vmap"], given=given, max_time_s=TIME_S))


def scaled(x, weights):
    return x @ weights


@section("2. Vectorization: in_axes", scaled)
def in_axes() -> None:
    """*"Minimize broadcasting: batch only what differs."*

    `jax.vmap(scaled)(x, weights)` batches both arguments, and fails where `weights` has no batch axis;
    `in_axes=(0, None)` shares it.
    """
    given = {"in_axes": "x=256"}
    print(benchax.experiment(scaled, "f32[64]", "f32[64,64]", variants=["in_axes"], given=given, max_time_s=TIME_S))


# ---- 3. Memory --------------------------------------------------------------------------------------------------


def deep(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


@section("3. Memory: rematerialization", deep)
def rematerialization() -> None:
    """*"With remat: 2-5x less memory, ~30 % slower."*

    `jax.checkpoint` keeps less between the two passes as JAX sees it. What that does to memory is decided by
    the compiler: read the column *peak*, which is its plan.
    """
    weights = [jax.random.normal(key, (256, 256)) / 16 for key in jax.random.split(jax.random.key(0), 12)]
    print(benchax.experiment(deep, weights, "f32[512,256]", variants=["remat"], max_time_s=TIME_S))


def shifted(x):
    return x + 1


@section("3. Memory: donation", shifted)
def donation() -> None:
    """*"Reuse buffers: donate_argnums."*

    Donated memory becomes that of the output. It works on CPU, too, and needs nothing private of JAX.
    """
    print(benchax.experiment(shifted, "f32[4096,4096]", variants=["donate"], max_time_s=TIME_S))


@section("3. Memory: what is needed, and when")
def memory() -> None:
    """*"Profile memory usage."*

    The compiler's plan is there before anything runs; what a call really adds to resident memory is observed
    beside it.
    """
    print(benchax.bench(workloads.train_step, *inputs_of(workloads.train_step), max_time_s=1.0))


# ---- 4. Precision -----------------------------------------------------------------------------------------------


def product(a, b):
    return a @ b


@section("4. Mixed precision", product)
def precision() -> None:
    """*"BF16 for 2-3x speedup."*

    Speed and error belong together. The error is the largest difference from a run in float64, as a share of
    the largest value.
    """
    print(benchax.experiment(product, "f32[512,512]", "f32[512,512]", variants=["bf16", "f16"], max_time_s=TIME_S))


# ---- 5. Several devices -----------------------------------------------------------------------------------------


def slopes(weights, x):
    return jax.grad(deep)(weights, x)


@section("5. Several devices: sharding", deep, slopes)
def sharding() -> None:
    """*"JAX inserts all-gather and reduce-scatter automatically. Profile communication overhead."*

    Which collectives XLA inserts, and how many bytes they move, can be read from the compiled program: where the batch
    is cut over the devices, the gradients have to be summed.
    """
    weights = ["f32[256,256]"] * 4
    print(benchax.experiment(slopes, weights, "f32[512,256]", variants=["devices"], max_time_s=TIME_S))


# ---- 6. Profiling -----------------------------------------------------------------------------------------------


@section("6. Profiling")
def profiling() -> None:
    """*"Profile before optimizing."*

    The trace of JAX's profiler, read into a table; the file itself can be opened in Perfetto or XProf
    ([profiling](profiling.md)).
    """
    weights, _ = inputs_of(workloads.transformer)
    x = jax.random.normal(jax.random.key(0), (4, 128, 128))
    print(benchax.profile(jax.jit(workloads.transformer), weights, x))


# ---- 7. The checklist -------------------------------------------------------------------------------------------


@section("7. The checklist")
def the_checklist() -> None:
    """Every line of the usual checklist, asked of one function, and answered by what was measured of it."""
    print(benchax.checklist(workloads.train_step, *inputs_of(workloads.train_step), max_time_s=2 * TIME_S))


# ---- 8. Patterns ------------------------------------------------------------------------------------------------


@section("8. Patterns: what does each optimisation contribute?")
def contributions() -> None:
    """*"This single function is: JIT compiled (10-100x faster), mixed precision (2-3x faster), memory optimized."*

    Factors from different places cannot be multiplied, and what is right for one function is wrong for another. First a
    training step, whose whole state would be bf16; then inference, with all optimisations on, and each off in turn:
    that is what each contributes beside the others.
    """
    both = ["bf16", "donate"]
    training, inference = workloads.train_step, workloads.transformer
    print(benchax.experiment(training, *inputs_of(training), variants=both, max_time_s=TIME_S))
    print()
    print(benchax.experiment(inference, *inputs_of(inference), variants=both, ablation=True, max_time_s=TIME_S))


# ---- 9. Hardware ------------------------------------------------------------------------------------------------


@section("9. Hardware: shapes it likes", product)
def alignment() -> None:
    """*"Powers of 2. Prefer 128-aligned shapes."*

    Sizes around one, each beside it: is one more or less slower, and is padding worth it?
    """
    given = {"alignment": "a.0+a.1+b.0+b.1=250"}
    print(
        benchax.experiment(
            product, "f32[250,250]", "f32[250,250]", variants=["alignment"], given=given, max_time_s=TIME_S
        )
    )


@section("9. Hardware: TF32", product)
def tf32() -> None:
    """*"Enable TF32 on A100."*

    A setting that the device does not know does nothing. Then the compiled program is the same, and there is
    nothing to time.
    """
    print(benchax.experiment(product, "f32[512,512]", "f32[512,512]", variants=["tf32"], max_time_s=TIME_S))


# ---- 10. Benchmarking -------------------------------------------------------------------------------------------


def power(x):
    return jnp.sum(x**2)


def times(x):
    return jnp.sum(x * x)


@section("10. Benchmarking: is it faster?", power, times)
def is_it_faster() -> None:
    """*"Validate speedups with benchmarks."*

    Two means from two loops, one after the other, and their quotient: that is how a busy machine makes
    speedups. Here both run in turns in the same processes, and the verdict says how sure it is. The second pair
    is two ways to write the same thing.
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
    """A wrong result is the fastest one, so every measurement compares the result with that of the un-jitted function.

    Compilers have bugs, too: of `row_sums`, XLA for CPUs in jaxlib 0.10.2 makes a program whose sums are wrong from
    some number of rows on. If the table says *identical*, yours does not.
    """
    print(benchax.bench(row_sums, "f32[256,64]", max_time_s=0.5))


if __name__ == "__main__":
    main(INTRODUCTION, PAGE, __doc__ or "")
