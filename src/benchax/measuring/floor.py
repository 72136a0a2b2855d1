"""The floor of a call: the time to call a program that does almost nothing, alternately with the measured one.

The program has the measured one's tree of arguments (each array a number, on the same device), and as many results. It
is on the same side of the limit from which XLA:CPU hands programs to another thread. It goes through `jax.jit` or a
`Compiled`, as the measured one does. The additional cost of a wrapper around a jit is not included.

The two alternate, because two medians taken one after the other on a busy machine differ with the machine's load.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import methodcaller
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchax.errors import NotMeasured
from benchax.machine.noise import paused_gc
from benchax.measuring.fresh_stack import on_fresh_stack
from benchax.measuring.timers.base import Subject
from benchax.measuring.timers.embedding import number_like
from benchax.model import CallFloor
from benchax.program.cost import INLINE_FLOPS
from benchax.static_leaves import drop
from benchax.units import seconds

LONGEST_CALL_S = 1e-3
"""For longer calls, the floor of 5 to 100 µs does not matter."""
PAIRS = 40
TIME_NS, ACCELERATOR_NS = 2_000_000, 20_000_000
"""The floor of a GPU is some 100 µs, and its first launches take longer."""


def call_floor(subject: Subject, call_s: float, inline_flops: float | None) -> CallFloor:
    """3 to 40 calls of each program, in about 2 ms; in 20 ms on an accelerator.

    Args:
        call_s: about how long a call takes.
        inline_flops: see `cost.inline_flops`, of the measured program.

    Raises:
        NotMeasured: there is nothing to compare with, or a call is so long that its floor does not matter.
    """
    if subject.program.kind == "eager":
        raise NotMeasured("it is measured eagerly, where each operation is a call")
    if subject.inputs.is_stateful:
        raise NotMeasured("it changes its arguments in place, which a program that does next to nothing would not")
    if call_s > LONGEST_CALL_S:
        raise NotMeasured(f"it is for calls below {seconds(LONGEST_CALL_S)}, and this one takes {seconds(call_s)}")
    if any(len(leaf.sharding.device_set) > 1 for leaf in subject.inputs.data):
        raise NotMeasured("its inputs are on several devices")
    if inline_flops is None and jax.default_backend() == "cpu":
        raise NotMeasured("XLA does not say on which thread its program runs")
    args, kwargs = jax.tree.map(number_like, subject.dynamic)
    floor = _nothing(jax.tree.structure(drop(subject.outputs)), (inline_flops or 0.0) < INLINE_FLOPS)
    if subject.program.kind == "compiled":
        floor = floor.lower(*args, **kwargs).compile()
    return _alternate(subject, lambda: floor(*args, **kwargs))


@lru_cache(maxsize=64)
def _nothing(outputs: Any, is_inline: bool) -> Any:
    """A jitted program of any arguments; kept, since most functions of a suite have one array in and one out."""

    def nothing(*args: Any, **kwargs: Any) -> Any:
        numbers = lax.iota(jnp.uint32, 1 if is_inline else 2 * INLINE_FLOPS)
        # XLA folds no product of counters. 4000 operations on integers: below 1 µs.
        number = (numbers * numbers).sum()
        return jax.tree.unflatten(outputs, [number + jnp.uint32(i) for i in range(outputs.num_leaves)])

    # JAX would drop arguments that nothing uses, and handling arguments is what calls differ by: 7 µs with one number,
    # 61 with 100 leaves.
    return jax.jit(nothing, keep_unused=True)


@on_fresh_stack
def _alternate(subject: Subject, floor: Callable[[], Any]) -> CallFloor:
    """Calls of the measured program and of the floor, one after the other, each waited for as `wall` waits."""
    is_array = isinstance(subject.outputs, jax.Array)
    wait: Callable[[Any], Any] = methodcaller("block_until_ready") if is_array else jax.block_until_ready
    call, calls_ns, floors_ns = subject.program.call, [], []
    time_ns = TIME_NS if jax.default_backend() == "cpu" else ACCELERATOR_NS
    wait(floor())
    begun = perf_counter_ns()
    with paused_gc():
        while len(floors_ns) < 3 or (len(floors_ns) < PAIRS and perf_counter_ns() - begun < time_ns):
            # Copies for a function that donates are made here, outside both intervals.
            ((args, kwargs),) = subject.calls(1)
            start = perf_counter_ns()
            wait(call(*args, **kwargs))
            between = perf_counter_ns()
            wait(floor())
            end = perf_counter_ns()
            calls_ns.append(between - start)
            floors_ns.append(end - between)
    return CallFloor(tuple(ns / 1e9 for ns in floors_ns), tuple(ns / 1e9 for ns in calls_ns))
