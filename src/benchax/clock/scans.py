"""`lax.scan` in strips: see `strips.py`. Rows are written in place, so that those reached survive; the others are zero.

Unrolled as JAX unrolls: XLA contracts a multiplication and an addition that it finds together, so that iterations which
are put together in another way would compute other last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from benchax.clock.strips import Arrays, LoopFacts

Step = Callable[[Arrays, Arrays, Any], tuple[Arrays, Arrays, Any]]
"""(carry, a row of each x, flag) to (carry, a row of each y, flag)."""


@dataclass(frozen=True)
class Scan:
    """A scan of `length` iterations, `unroll` of them at a time."""

    step: Step
    rows: Sequence[Any]
    """Shape and dtype of a row of each y."""
    length: int
    reverse: bool
    unroll: int
    loop: LoopFacts

    def run(self, carry: Arrays, xs: Arrays, flag: Any) -> tuple[Arrays, Arrays, Any]:
        """(carry, ys, flag)."""
        trips = self.length // self.unroll if self.unroll else 0
        if trips == 0 or (trips == 1 and self.unroll == self.length > 1):
            return self._without_loop(carry, xs, flag, self.length)
        looped = trips * self.unroll
        if looped == self.length:
            return self._in_strips(carry, xs, flag, trips)
        split = self.length - looped if self.reverse else looped
        parts = [lax.slice_in_dim(x, 0, split) for x in xs], [lax.slice_in_dim(x, split, self.length) for x in xs]
        first, last = reversed(parts) if self.reverse else parts
        carry, ys, flag = self._in_strips(carry, first, flag, trips)
        carry, rest, flag = self._rest(carry, last, flag)
        pairs = zip(rest, ys, strict=True) if self.reverse else zip(ys, rest, strict=True)
        return carry, [lax.concatenate(pair, 0) for pair in pairs], flag

    def _in_strips(self, carry: Arrays, xs: Arrays, flag: Any, trips: int) -> tuple[Arrays, Arrays, Any]:
        if self.unroll == 1:
            return in_strips(self.step, carry, xs, self._empty(trips), flag, self.loop, trips, self.reverse)
        blocks = [lax.reshape(x, (trips, self.unroll, *x.shape[1:])) for x in xs]
        step = partial(self._without_loop, n=self.unroll)
        ys = self._empty(trips, self.unroll)
        carry, ys, flag = in_strips(step, carry, blocks, ys, flag, self.loop, trips, self.reverse)
        return carry, [lax.reshape(y, (trips * self.unroll, *y.shape[2:])) for y in ys], flag

    def _without_loop(self, carry: Arrays, xs: Arrays, flag: Any, n: int) -> tuple[Arrays, Arrays, Any]:
        """`n` iterations one after the other."""
        rows: list[Arrays] = []
        for i in range(n):
            at = n - i - 1 if self.reverse else i
            carry, row, flag = self.step(carry, [lax.index_in_dim(x, at, keepdims=False) for x in xs], flag)
            rows.append(row)
        columns = zip(*(reversed(rows) if self.reverse else rows), strict=True)
        return carry, [_stack(column) for column in columns] if n else self._empty(0), flag

    def _rest(self, carry: Arrays, xs: Arrays, flag: Any) -> tuple[Arrays, Arrays, Any]:
        """What is left after the loop; nothing of it counts if the loop was stopped."""
        n = self.length % self.unroll
        new, ys, now = self._without_loop(carry, xs, flag, n)
        if self.loop.guard.must_raise:
            return new, ys, now
        kept = [lax.select(flag, a, b) for a, b in zip(carry, new, strict=True)]
        return kept, [lax.select(flag, a, b) for a, b in zip(self._empty(n), ys, strict=True)], now

    def _empty(self, *shape: int) -> Arrays:
        return [jnp.zeros((*shape, *row.shape), row.dtype) for row in self.rows]


def _stack(rows: tuple[Any, ...]) -> Any:
    return lax.concatenate([lax.expand_dims(row, (0,)) for row in rows], 0)


def in_strips(
    step: Step, carry: Arrays, xs: Arrays, ys: Arrays, flag: Any, loop: LoopFacts, length: int, reverse: bool
) -> tuple[Arrays, Arrays, Any]:
    """A scan of `length` steps that writes over `ys` row by row; of one step, without a look at the clock."""

    def iteration(state: Any) -> Any:
        i, flag, carry, ys = state
        at = length - i - 1 if reverse else i
        x = [lax.dynamic_index_in_dim(x, at, keepdims=False, allow_negative_indices=False) for x in xs]
        carry, y, flag = step(carry, x, flag)
        ys = [
            lax.dynamic_update_index_in_dim(rows, row, at, 0, allow_negative_indices=False)
            for rows, row in zip(ys, y, strict=True)
        ]
        return i + 1, flag, carry, ys

    def strip(state: Any) -> Any:
        i, flag, clock, carry, ys = state
        # As a difference, because i and the longest strip together may be more than an int32 holds.
        stop = i + jnp.minimum(clock[2].astype(jnp.int32), length - i)
        i, flag, carry, ys = lax.while_loop(
            lambda state: loop.goes_on(state[0] < stop, state[1]), iteration, (i, flag, carry, ys)
        )
        clock, flag = loop.guard.tick(clock, i, flag)
        return i, flag, clock, carry, ys

    if length == 1:
        # XLA sees how often it runs, and inlines it, as it would have done.
        _, flag, carry, ys = lax.while_loop(lambda state: state[0] < 1, iteration, (jnp.int32(0), flag, carry, ys))
        return carry, ys, flag
    start = (jnp.int32(0), flag, loop.first_state(), carry, ys)
    _, flag, _, carry, ys = lax.while_loop(lambda state: (state[0] < length) & ~state[1], strip, start)
    return carry, ys, flag
