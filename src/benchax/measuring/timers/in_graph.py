"""Times the function by a clock inside a compiled program: its cost inside other compiled code, run by run.

One executable repeats: read the clock, run the function `n` times, read the clock again. Readings are pinned to their
places by data dependencies alone (`clock/stamps.py`): the inputs pass through them. After each run they pass through an
unused reading that waits for the outputs, so that each run depends on the one before. The same program without the
function and its data measures this cost alternately. It is subtracted: 0.13 µs a run. For each
case, `embedding.py` proves that the optimised program does all of the function's work between two readings.

It includes the dispatch of the function's own kernels: on a GPU, XLA launches them. It excludes Python, dispatch of the
call, the hand-over to XLA's threads, transfers, and the allocation of outputs. Each reading is separate, so a median
over them rejects preemptions. A difference of two long loops would average them in. A function below the cost of a
reading is refused. The time is wrong if XLA compiles the same operations differently inside a bigger program (other
layouts, other fusions).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import lru_cache, partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchax.clock import handlers
from benchax.clock.handlers import Tier, nanoseconds, tier
from benchax.errors import NotAvailable, NotMeasured
from benchax.measuring.program import as_reason
from benchax.measuring.timers.base import PreparedTimer, Subject, clock_resolution_s, refuse
from benchax.measuring.timers.embedding import (
    FORMS,
    Embedded,
    Leaves,
    Proven,
    Run,
    compile_proven,
    embed,
    feed,
    number_like,
    run_direct,
)
from benchax.model import Form
from benchax.program.census import timed_body
from benchax.program.work import count_devices
from benchax.static_leaves import data_of, like

Once = Callable[[Leaves, Any], Leaves]
"""(values, the reading of the clock before) -> outputs of one run."""
READINGS = 1024
"""The largest number of readings by one call of the executable. In addition, each call copies its inputs and makes its
outputs once."""
EMPTY_READINGS = 16
MOST_ITERATIONS = 1000
MOST_FIXED = 100
"""On a GPU, where benchax compiles one program for each number of runs."""
SPAN_S = {"prebuilt": 10e-6, "built": 10e-6, "python": 100e-6, "cuda": 100e-6}
"""How long a reading should be at least, by tier: its own jitter is below 1 % of that. Unverified for cuda."""


def prepare(subject: Subject) -> PreparedTimer:
    """Raises `NotMeasured` with the reason if there is no such clock, or the function cannot be repeated."""
    function = embed(subject, MOST_ITERATIONS)
    leaves = function.leaves
    clock = _clock(leaves, subject.hlo)
    is_fixed, compiled = clock.name == "cuda", lru_cache(partial(_compiled, clock, subject, function))
    overheads: dict[int, list[int]] = {}

    def take(iterations: int, count: int) -> list[int]:
        run, empty, numbers = compiled(iterations if is_fixed else None)
        # If readings are so long that few are needed, the cost of the clock does not matter.
        if count >= EMPTY_READINGS or iterations not in overheads:
            overheads.setdefault(iterations, []).extend(_read(empty, EMPTY_READINGS, iterations, numbers))
        parts = [min(READINGS, count - begin) for begin in range(0, count, READINGS)]
        return [ns for part in parts for ns in _read(run.call, part, iterations, leaves)]

    run, _, _ = compiled(1 if is_fixed else None)
    return PreparedTimer(
        sample=lambda n: round(median(take(n, 8))),
        take=take,
        overhead_s=lambda n: median(overheads[n]) / 1e9,
        clock_tier=clock.name,
        census=run.census,
        regime=graphs_regime() if is_fixed else subject.regime,
        most_iterations=min(function.most_calls, MOST_FIXED) if is_fixed else function.most_calls,
        sample_time_s=SPAN_S[clock.name],
        resolution_s=partial(handlers.step_s, clock) if is_fixed else clock_resolution_s,
    )


def graphs_regime() -> str:
    """Whether XLA may run parts of programs as CUDA graphs. Its text does not name these parts."""
    given = re.findall(r"--xla_gpu_enable_command_buffer=(\S*)", os.environ.get("XLA_FLAGS", ""))
    return "CUDA graphs off" if given and not given[-1].strip("'\"") else "CUDA graphs on"


def _clock(leaves: Leaves, hlo: str) -> Tier:
    # Under plain jit, XLA gathers a sharded array before a custom call and drops the sharding afterwards.
    is_sharded = any(len(leaf.sharding.device_set) > 1 for leaf in leaves if isinstance(leaf, jax.Array))
    devices = count_devices(hlo)
    refuse(
        (is_sharded, "its inputs are sharded over devices, and reading the clock would gather them"),
        (devices > 1, f"it runs on {devices} devices, and a reading of the clock belongs to one device"),
    )
    try:
        return tier()
    except NotAvailable as error:
        raise NotMeasured(f"there is no clock for compiled code here: {error.problem}") from error


def _read(run: Callable[..., Any], count: int, iterations: int, leaves: Leaves) -> list[int]:
    """Nanoseconds between `count` pairs of stamps."""
    times = nanoseconds(run(np.int32(count), np.int32(iterations), *leaves))[:count]
    return (times[:, 1] - times[:, 0]).tolist()


def _compiled(
    clock: Tier, subject: Subject, function: Embedded, iterations: int | None
) -> tuple[Proven, Callable[..., Any], Leaves]:
    """(program around the function, the same without it, the arguments of the latter), run once. An error of tracing
    or compiling is a reason.

    Args:
        iterations: runs between two readings; None: an operand says how many. On a GPU, the host would read it before
            each run, inside the interval.
    """
    body, leaves = function.body, function.leaves
    with as_reason("it cannot be repeated inside a compiled program"):
        once = np.int32(1), np.int32(1)
        run = compile_proven(
            lambda run: _program(clock, lambda values, time: run(body, values, time[1]), function.fed, iterations),
            lambda module: timed_body(module, clock.target("stamp")),
            once,
            function,
            subject,
        )
        count, numbers = len(jax.eval_shape(body, leaves)), list(map(number_like, leaves))
        empty = _without_function(clock, run.form, count, iterations).lower(*once, *numbers).compile()
        _read(run.call, 1, 1, leaves)
        _read(empty, 1, 1, numbers)
        return run, empty, numbers


@lru_cache(maxsize=16)
def _without_function(clock: Tier, form: Form, count: int, iterations: int | None) -> Any:
    """Returns the jitted program that surrounds functions of `count` outputs. Call it with a number for each array.

    A reading passes buffers on and copies none. So its cost depends on their number and not on their sizes: within 3 %
    for ten functions of 1 to 7 arrays of up to 400 KB. The program is kept, because JAX compiles a known function only
    once for equal arguments. This program takes as long to compile as the timed one.
    """
    return jax.jit(_program(clock, _nothing(FORMS[form], count), iterations=iterations))


def _nothing(run: Run, count: int) -> Once:
    """Does only the steps around a function: its outputs are there already. In a branch, they become a number that is
    at hand, so that XLA leaves the conditional in the program. There are as many outputs as the function has, because a
    reading costs more with more values."""
    if run is run_direct:
        outputs = [jnp.zeros(1, jnp.uint32) for _ in range(count)]
        return lambda values, time: outputs
    return lambda values, time: run(lambda _: [time[:1] for _ in range(count)], values, time[1])


def _program(
    clock: Tier, run_once: Once, fed: Mapping[int, int] | None = None, iterations: int | None = None
) -> Callable[..., Any]:
    """(count, runs, *leaves) -> u32[READINGS, 2, 2], the stamps before and after these runs.

    Args:
        fed: `Embedded.fed`.
        iterations: the number of runs, if they are no operand.
    """
    fed = fed or {}

    def once(_: Any, carry: Any) -> Any:
        values, time = carry
        outputs = run_once(values, time)
        # Nothing else may use the replaced arrays between two runs, because XLA would copy them.
        values, time = _through(clock, values, outputs, passing_by=fed)
        return feed(fed, values, outputs), time

    def program(count: Any, runs: Any, *leaves: Any) -> Any:
        def reading(carry: Any) -> Any:
            i, first, buffer = carry
            # Copy the arrays that the function replaces before reading the clock, because the next reading needs them
            # again.
            values, start = _through(clock, first)
            values, time = lax.fori_loop(0, iterations or runs, once, (values, start))
            left = [*(values[leaf] for leaf in fed), time] if fed else []
            values, end = _through(clock, values, left, passing_by=fed)
            buffer = lax.dynamic_update_slice(buffer, jnp.stack([start, end])[None], (i, 0, 0))
            # The result also passes through another stamp. Otherwise XLA would move the whole reading out of the loop.
            again, _ = _through(clock, [first[leaf] for leaf in fed], [end]) if fed else ([], None)
            return i + 1, feed({leaf: place for place, leaf in enumerate(fed)}, values, again), buffer

        values = [jnp.asarray(leaf) for leaf in leaves]
        # A time is two words of 32 bits: with jax_enable_x64 off, the first operation on an int64 would cut it to one.
        carry = (jnp.int32(0), values, jnp.zeros((READINGS, 2, 2), jnp.uint32))
        # `count` and `iterations` are operands and the buffer has one size, so that one compilation serves all batches.
        return lax.while_loop(lambda carry: carry[0] < count, reading, carry)[2]

    return program


def _through(
    clock: Tier, values: Leaves, outputs: Sequence[Any] = (), passing_by: Container[int] = ()
) -> tuple[Leaves, Any]:
    """Passes values through one reading of the clock, which waits for the outputs too. Returns them and the reading.

    The outputs end here. If they were carried from run to run, XLA would keep a buffer for them. It would then give the
    temporaries a separate buffer, which otherwise share the outputs' buffer (log_softmax of 256 × 256: 22.2 µs, not
    19.9).

    Typed keys pass as the numbers that they consist of. Python's numbers would come back as arrays and change the
    function's computation (bf16 * 2.5 is bf16). A barrier holds them, which is enough to keep them in the loop.

    Args:
        passing_by: positions of values that the reading neither waits for nor holds.
    """
    is_weak = [getattr(value, "weak_type", False) for value in values]
    plain = [data_of(value) for i, value in enumerate(values) if not is_weak[i] and i not in passing_by]
    passed, time = handlers.stamp(clock, plain, outputs)
    strong = iter(passed)

    def new(i: int, value: Any) -> Any:
        if i in passing_by:
            return value
        return lax.optimization_barrier((value, time))[0] if is_weak[i] else like(value, next(strong))

    return [new(i, value) for i, value in enumerate(values)], time
