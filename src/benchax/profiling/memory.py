"""Which arrays are alive: before and after some code, and JAX's own memory profile of this moment.

`jax.live_arrays()` sees what Python holds and what waits to be freed; temporaries inside programs are not in it, nor
any peak. For peaks see `measuring/memory.py`.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping

import jax

from benchax.results.profile import LiveBuffers

Live = Mapping[tuple[tuple[int, ...], str], tuple[int, int]]
"""(shape, dtype) → (how many, bytes of all of them)."""


def live() -> Live:
    """What is alive now. Collects garbage first: what only a cycle holds is no leak."""
    gc.collect()
    counts: Counter[tuple[tuple[int, ...], str]] = Counter()
    sizes: Counter[tuple[tuple[int, ...], str]] = Counter()
    for array in jax.live_arrays():
        if not array.is_deleted():
            kind = (tuple(array.shape), str(array.dtype))
            counts[kind] += 1
            sizes[kind] += array.nbytes
    return {kind: (counts[kind], sizes[kind]) for kind in counts}


def live_bytes(arrays: Live) -> int:
    return sum(size for _, size in arrays.values())


def left_over(before: Live, after: Live) -> tuple[LiveBuffers, ...]:
    """Arrays of a shape and dtype of which there are more now, largest first."""
    found: list[LiveBuffers] = []
    for (shape, dtype), (count, size) in after.items():
        more = count - before.get((shape, dtype), (0, 0))[0]
        if more > 0:
            found.append(LiveBuffers(shape, dtype, more, size * more // count))
    return tuple(sorted(found, key=lambda one: (-one.size_bytes, one.shape, one.dtype)))


def pprof() -> bytes:
    """Gzipped pprof of what is alive now and which lines of Python made it, for `pprof` and `go tool pprof`."""
    return jax.profiler.device_memory_profile()
