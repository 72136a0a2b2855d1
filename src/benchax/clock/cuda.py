"""The clock of compiled code on NVIDIA GPUs: kernels in Triton's intermediate language, which XLA compiles itself.

A stamp is a kernel of one warp that writes `%globaltimer`, the nanoseconds of the GPU's own clock. It gets the arrays
that it waits for, and does not touch them. XLA knows the call as `__gpu$xla.gpu.triton`, the name that Pallas uses. No
package is needed, and a machine without a GPU lowers the program.

All streams of a GPU read one clock. It steps by 32 ns to 1 µs, depending on the device (`handlers.step_s`). Times of
two GPUs, or of a GPU and its host, have no common beginning.

A kernel can't end its program with an error. So here a deadline only stops loops, and the caller on the host raises.
The host reads the condition of a loop that has no known number of trips, which costs some 10 µs for each trip. So a
strip is four times as long as on a CPU, and `rewriting.py` looks at the trips of a scan in blocks.

Unverified: nothing of this module has run on a GPU yet. XLA compiles each form of it for an H100 (JAX 0.12).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.clock.times import from_seconds, is_before, minus, plus

TARGET = "__gpu$xla.gpu.triton"
LOOK_NS = 100_000, 800_000, 4_000_000, 2_000_000
"""A strip that takes less than the first of these is lengthened eightfold, and one that takes less than the second,
twofold. One that takes more than the third is shortened to the last. Unverified: 40 µs a look, 5 % of the second."""
_NOW = (
    'tt.elementwise_inline_asm "mov.u64 $0, %globaltimer;" '
    '{constraints = "=l,r", packed_element = 1 : i32, pure = false} %zero : i32 -> i64'
)
"""Triton wants an operand. `pure = false` keeps a reading in its loop."""

Words = Any
"""u32[2], see `times.py`."""


def stamp(
    arrays: Sequence[jax.Array], after: Sequence[jax.Array] = (), name: str = "benchax_stamp"
) -> tuple[list[jax.Array], Words]:
    """See `handlers.stamp`."""
    kernel = f"""
    %now = {_NOW}
    tt.store %last, %now : !tt.ptr<i64>"""
    *passed, now = _call(name, kernel, arrays, after, [jax.ShapeDtypeStruct((2,), jnp.uint32)])
    return passed, now


def spin(x: jax.Array, ns: int) -> jax.Array:
    """See `handlers.spin`."""
    kernel = f"""
    %ns = arith.constant {ns} : i64
    %begin = {_NOW}
    %until = arith.addi %begin, %ns : i64
    %end = scf.while (%now = %begin) : (i64) -> i64 {{
      %is_early = arith.cmpi ult, %now, %until : i64
      scf.condition(%is_early) %now : i64
    }} do {{
    ^bb0(%before: i64):
      %next = {_NOW}
      scf.yield %next : i64
    }}"""
    (x,) = _call("benchax_spin", kernel, [x])
    return x


def _call(
    name: str, kernel: str, passed: Sequence[Any], read: Sequence[Any] = (), written: Sequence[Any] = ()
) -> Sequence[jax.Array]:
    """Runs a kernel of one warp: the arrays of `passed`, untouched, and then what it writes.

    Args:
        kernel: its statements. `%zero` is there, and `%last`, the last array that it writes.
        read: arrays that it waits for as well.
        written: shapes.
    """
    results = [*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in passed), *written]
    # Its operands, and then its results: one pointer each.
    pointers = [f"%p{i}" for i in range(len(passed) + len(read) + len(results) - 1)] + ["%last"]
    text = f"""module {{
  tt.func public @{name}({", ".join(f"{pointer}: !tt.ptr<i64>" for pointer in pointers)}) {{
    %zero = arith.constant 0 : i32{kernel}
    tt.return
  }}
}}
"""
    one = np.int32(1)
    shape = dict.fromkeys(("num_stages", "num_warps", "grid_x", "grid_y", "grid_z"), one)
    call = jax.ffi.ffi_call(TARGET, results, input_output_aliases={i: i for i in range(len(passed))})
    return call(*passed, *read, name=name, ir=text, debug=False, **shape)


def deadline(seconds: jax.Array, latest: Words, after: jax.Array) -> Words:
    """See `handlers.deadline`."""
    _, now = stamp([], [after])
    own = plus(now, from_seconds(seconds))
    return jnp.where((seconds < jnp.inf) & is_before(own, latest), own, latest)


def tick(until: Words, state: jax.Array, after: jax.Array) -> tuple[jax.Array, jax.Array]:
    """See `handlers.tick`."""
    _, now = stamp([], [after], "benchax_tick")
    last, strip = state[:2], state[2]
    low, high = minus(now, last)
    elapsed_ns = jnp.where(high > 0, jnp.float32(2.0**32), low.astype(jnp.float32))
    shortest, short, long, wanted = LOOK_NS
    is_in = [jnp.all(last == 0), elapsed_ns < shortest, elapsed_ns < short, elapsed_ns > long]
    factor = jnp.select(is_in, [1.0, 8.0, 2.0, wanted / elapsed_ns], 1.0)
    strip = jnp.clip(strip.astype(jnp.float32) * factor, 1.0, 2.0**28).astype(jnp.uint32)
    return jnp.stack([*now, strip]), ~is_before(now, until)
