"""Loops that look at the clock: an outer loop of strips, each of up to B iterations without a look.

After a strip, `tick` (see `handlers.c`) reads the clock, says whether the time is up, and chooses the next B. So a look
costs little and a stop comes within about a millisecond. The loops compute the same values as `jax.lax`, in the same
order. This module does not know programs: the bodies are functions.

A flag (bool[]) says whether the time was up at the last look. It is carried through all loops that hold others, so that
these stop too. If the program ends by itself (`must_raise`), it stays False.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchax.clock import handlers, survey
from benchax.clock.tiers import Tier

Arrays = list[Any]
Body = Callable[[Arrays, Any], tuple[Arrays, Any]]
"""(carry, flag) to (carry, flag)."""
Condition = Callable[[Arrays, Any], tuple[Any, Any]]
"""(carry, flag) to (go on?, flag)."""


LONGEST = 1 << 12
"""First strip: the estimate is rough."""


@dataclass(frozen=True)
class Guard:
    """The limit and the clock that a rewritten program looks at."""

    tier: Tier
    until: jax.Array
    must_raise: bool = False

    def tick(self, state: Any, after: Any, flag: Any) -> tuple[Any, Any]:
        """(state, flag) after a look at the clock."""
        state, is_expired = handlers.tick(self.tier, self.until, state, after, must_raise=self.must_raise)
        return state, flag if self.must_raise else flag | is_expired


@dataclass(frozen=True)
class LoopFacts:
    """The known facts about a loop before it runs."""

    guard: Guard
    step_ns: float
    """About how long an iteration takes, at most; see `survey.py`."""
    is_nested: bool
    """Whether there are loops in it that may find that the time is up."""
    has_lanes: bool = False
    """Whether it is a vmapped `while`, whose condition is one bool for each lane."""

    def first_state(self) -> Any:
        """The state of `tick` before the first look: a strip that is surely short."""
        strip = max(1, min(LONGEST, int(survey.SHORT_NS / max(self.step_ns, 1.0))))
        return jnp.asarray([0, 0, strip], jnp.uint32)

    def goes_on(self, is_unfinished: Any, flag: Any) -> Any:
        """Whether a strip goes on: inside it the flag changes only where other loops look."""
        return is_unfinished & ~flag if self.is_nested and not self.guard.must_raise else is_unfinished


def while_loop(condition: Condition, body: Body, carry: Arrays, flag: Any, loop: LoopFacts) -> tuple[Arrays, Any]:
    """`lax.while_loop` for a condition without loops to stop; bool[], or one bool per lane of a vmapped loop."""

    def strip(state: Any) -> Any:
        _, flag, clock, carry = state
        length = clock[2].astype(jnp.int32)

        def goes_on(inner: Any) -> Any:
            done, flag, carry = inner
            return loop.goes_on(done < length, flag) & _any(condition(carry, flag)[0])

        def step(inner: Any) -> Any:
            done, flag, carry = inner
            new, flag = body(carry, flag)
            return done + 1, flag, _lanes(lambda: condition(carry, flag)[0], new, carry, loop)

        done, flag, carry = lax.while_loop(goes_on, step, (jnp.int32(0), flag, carry))
        # `done` is handed to the clock for nothing but order: it is ready when the strip is over.
        clock, flag = loop.guard.tick(clock, done, flag)
        # A strip that ended early has ended because of the condition, or of the flag.
        return done == length, flag, clock, carry

    start = (jnp.bool_(True), flag, loop.first_state(), carry)
    _, flag, _, carry = lax.while_loop(lambda state: state[0] & ~state[1], strip, start)
    return carry, flag


def while_loop_of_loops(
    condition: Condition, body: Body, carry: Arrays, flag: Any, loop: LoopFacts
) -> tuple[Arrays, Any]:
    """`lax.while_loop` for a condition with loops to stop: computed after the body, so that its flag can be carried."""

    def apart(carry: Arrays, flag: Any) -> tuple[Any, Any]:
        # In a branch of its own, else XLA would fuse it with the body, and that would round in another way. XLA does
        # not know that the branch is always taken.
        shape = jax.eval_shape(lambda: condition(carry, flag)[0])
        never = lambda carry, flag: (jnp.zeros(shape.shape, bool), flag)  # noqa: E731
        return lax.cond(jnp.any(loop.guard.until > 0), condition, never, carry, flag)

    def strip(state: Any) -> Any:
        running, flag, clock, carry = state
        length = clock[2].astype(jnp.int32)

        def goes_on(inner: Any) -> Any:
            done, running, flag, _ = inner
            return loop.goes_on(done < length, flag) & _any(running)

        def step(inner: Any) -> Any:
            done, running, flag, carry = inner
            new, flag = body(carry, flag)
            carry = _lanes(lambda: running, new, carry, loop)
            running, flag = apart(carry, flag)
            return done + 1, running, flag, carry

        done, running, flag, carry = lax.while_loop(goes_on, step, (jnp.int32(0), running, flag, carry))
        clock, flag = loop.guard.tick(clock, done, flag)
        return running, flag, clock, carry

    running, flag = apart(carry, flag)
    start = (running, flag, loop.first_state(), carry)
    _, flag, _, carry = lax.while_loop(lambda state: _any(state[0]) & ~state[1], strip, start)
    return carry, flag


def _any(lanes: Any) -> Any:
    return lanes if lanes.ndim == 0 else jnp.any(lanes)


def _lanes(running: Callable[[], Any], new: Arrays, old: Arrays, loop: LoopFacts) -> Arrays:
    """Lanes that have ended keep what they have."""
    if not loop.has_lanes:
        return new
    lanes = running()
    return [
        lax.select(lax.broadcast_in_dim(lanes, a.shape, range(lanes.ndim)), a, b) for a, b in zip(new, old, strict=True)
    ]
