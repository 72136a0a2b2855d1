"""Functions whose memory above their input is known by construction, in multiples of the input's size S.

Why the truth is the truth. Compiled: an array that leaves the program needs a buffer of its own (nothing is donated);
the stacked results of a scan lie in memory in full before anything after the loop reads them; and what is read
backwards cannot be overwritten in place. The compiler's plan (temporaries + outputs) has to say the same, or the case
is not used. Un-jitted: each line waits for its array. Otherwise Python could drop an array before the device has made
it (run-ahead), and how many exist at once would be a matter of luck. An array lives as long as a name holds it, and
until XLA gives it back.

    out, temp, temp+out, 2temp+out      compiled
    held, replaced, reduced, returned   eager
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MIB = 2**20
ROWS = 1024
"""The input is f32[1024, n]: a scan goes over rows of S/1024, and the two rows that it carries are 0.2 % of S."""

RELEASE_S = 0.02

ready = jax.block_until_ready


@dataclass(frozen=True)
class MemoryCase:
    name: str
    fn: Callable[[Any], Any]
    multiple: int
    """Bytes above the input, at the highest, over the bytes of the input."""
    is_jitted: bool


def out(x: Any) -> Any:
    return x + 1


def temp(x: Any) -> Any:
    return _stacked(x, 0.5).sum()


def temp_and_out(x: Any) -> Any:
    return _stacked(x, 0.5)[:, ::-1] * x


def two_temps_and_out(x: Any) -> Any:
    return _stacked(x, 0.5)[:, ::-1] * _stacked(x, 0.25)[::-1]


def _stacked(x: Any, weight: float) -> Any:
    return jax.lax.scan(lambda carry, row: (carry * weight + row, carry), x[0], x)[1]


def held(x: Any) -> Any:
    a = ready(x + 1)
    b = ready(a * 2)
    return ready(b - 3)  # a and b live until the function ends


def replaced(x: Any) -> Any:
    y = ready(x + 1)
    y = ready(y * 2)  # the old y lives until its name is given away: two at once
    # XLA's thread gives the old array back a little after the new one is ready. Without a pause it was still there
    # when the third was made: 3 S and not 2, in 7 of 40 calls at load 4. That was its true peak, but not a known one.
    time.sleep(RELEASE_S)
    return ready(y - 3)


def reduced(x: Any) -> Any:
    a = ready(x + 1)
    return ready(a.sum())


def returned(x: Any) -> Any:
    return ready(x + 1)


CASES = (
    MemoryCase("out", out, 1, True),
    MemoryCase("temp", temp, 1, True),
    MemoryCase("temp+out", temp_and_out, 2, True),
    MemoryCase("2temp+out", two_temps_and_out, 3, True),
    MemoryCase("held", held, 3, False),
    MemoryCase("replaced", replaced, 2, False),
    MemoryCase("reduced", reduced, 1, False),
    MemoryCase("returned", returned, 1, False),
)


def input_of(size_bytes: int) -> Any:
    """Random: a constant might be folded."""
    random = np.random.default_rng(0)
    return ready(jnp.asarray(random.standard_normal((ROWS, size_bytes // 4 // ROWS), dtype=np.float32)))
