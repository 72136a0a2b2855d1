"""Loops that look at the clock: an outer loop of strips, each of up to B iterations without a look.

After a strip `tick` (see `handlers.c`) reads the clock, says whether the time is up, and chooses the B of the next one
so that a look costs little and a stop comes within about a millisecond. What the loops compute, and in which order, is
what `jax.lax` computes. Programs are not known here: the bodies are functions.

A flag (bool[]) says whether the time was up at the last look. It is carried through all loops that hold others, so that
these stop too. Where the program ends by itself (`must_raise`) it stays False and is not carried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchax.clock import handlers
from benchax.clock.tiers import Tier

Arrays = list[Any]
Body = Callable[[Arrays, Any], tuple[Arrays, Any]]
"""(carry, flag) to (carry, flag)."""
Condition = Callable[[Arrays, Any], tuple[Any, Any]]
"""(carry, flag) to (go on?, flag)."""
Step = Callable[[Arrays, Arrays, Any], tuple[Arrays, Arrays, Any]]
"""(carry, x, flag) to (carry, y, flag)."""


@dataclass(frozen=True)
class Guard:
    """What a rewritten program looks at."""

    tier: Tier
    until: jax.Array
    must_raise: bool = False

    def tick(self, state: Any, after: Any, flag: Any) -> tuple[Any, Any]:
        state, is_expired = handlers.tick(self.tier, self.until, state, after, must_raise=self.must_raise)
        return state, flag if self.must_raise else flag | is_expired


def while_loop(condition: Condition, body: Body, carry: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    """`lax.while_loop` for a condition without loops of its own, bool[]."""

    def strip(state: Any) -> Any:
        _, flag, clock, carry = state
        length = clock[2].astype(jnp.int32)

        def goes_on(inner: Any) -> Any:
            done, flag, carry = inner
            return (done < length) & ~flag & condition(carry, flag)[0]

        def step(inner: Any) -> Any:
            done, flag, carry = inner
            carry, flag = body(carry, flag)
            return done + 1, flag, carry

        done, flag, carry = lax.while_loop(goes_on, step, (jnp.int32(0), flag, carry))
        clock, flag = guard.tick(clock, done, flag)
        # A strip that ended early ended because of the condition.
        return done == length, flag, clock, carry

    start = (jnp.bool_(True), flag, jnp.asarray(handlers.FIRST_STRIP), carry)
    _, flag, _, carry = lax.while_loop(lambda state: state[0] & ~state[1], strip, start)
    return carry, flag


def while_loop_over_lanes(
    condition: Condition, body: Body, carry: Arrays, flag: Any, guard: Guard
) -> tuple[Arrays, Any]:
    """`lax.while_loop` for any condition: with loops of its own, or one bool per lane of a vmapped loop.

    The condition is computed in the body, so that its flag can be carried. Lanes that have ended keep their carry.
    """

    def strip(state: Any) -> Any:
        running, flag, clock, carry = state
        length = clock[2].astype(jnp.int32)

        def goes_on(inner: Any) -> Any:
            done, running, flag, _ = inner
            return (done < length) & ~flag & jnp.any(running)

        def step(inner: Any) -> Any:
            done, running, flag, carry = inner
            new, flag = body(carry, flag)
            carry = [_select(running, a, b) for a, b in zip(new, carry, strict=True)]
            running, flag = condition(carry, flag)
            return done + 1, running, flag, carry

        done, running, flag, carry = lax.while_loop(goes_on, step, (jnp.int32(0), running, flag, carry))
        clock, flag = guard.tick(clock, done, flag)
        return running, flag, clock, carry

    running, flag = condition(carry, flag)
    start = (running, flag, jnp.asarray(handlers.FIRST_STRIP), carry)
    _, flag, _, carry = lax.while_loop(lambda state: jnp.any(state[0]) & ~state[1], strip, start)
    return carry, flag


def _select(running: Any, new: Any, old: Any) -> Any:
    if running.ndim == 0:
        return new
    return lax.select(lax.broadcast_in_dim(running, new.shape, range(running.ndim)), new, old)


def scan(
    step: Step,
    carry: Arrays,
    xs: Arrays,
    rows: Sequence[Any],
    flag: Any,
    guard: Guard,
    *,
    length: int,
    reverse: bool,
) -> tuple[Arrays, Arrays, Any]:
    """`lax.scan` whose rows are written in place: those not reached are zero.

    Args:
        rows: shape and dtype of one row of each y.
    """
    ys = [jnp.zeros((length, *row.shape), row.dtype) for row in rows]

    def iteration(state: Any) -> Any:
        i, flag, carry, ys = state
        at = length - 1 - i if reverse else i
        x = [lax.dynamic_index_in_dim(x, at, keepdims=False) for x in xs]
        carry, y, flag = step(carry, x, flag)
        ys = [lax.dynamic_update_index_in_dim(rows, row, at, 0) for rows, row in zip(ys, y, strict=True)]
        return i + 1, flag, carry, ys

    def strip(state: Any) -> Any:
        i, flag, clock, carry, ys = state
        stop = i + jnp.minimum(clock[2].astype(jnp.int32), length - i)
        i, flag, carry, ys = lax.while_loop(lambda s: (s[0] < stop) & ~s[1], iteration, (i, flag, carry, ys))
        clock, flag = guard.tick(clock, i, flag)
        return i, flag, clock, carry, ys

    start = (jnp.int32(0), flag, jnp.asarray(handlers.FIRST_STRIP), carry, ys)
    _, flag, _, carry, ys = lax.while_loop(lambda state: (state[0] < length) & ~state[1], strip, start)
    return carry, ys, flag
