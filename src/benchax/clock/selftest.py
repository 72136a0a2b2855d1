"""Which clock to use: the best tier that tells the truth here. What it must pass before a number is made with it:

One compiled program holds sixteen functions of known duration, each between two stamps. They must come in order, none
overlapping the next, each as long as it is known to be; and the times must never step back. Sixteen, because with fewer
XLA:CPU keeps the order by itself and a clock that is not pinned looks right.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchax.clock.handlers import spin, stamp
from benchax.clock.tiers import LOADERS, Tier, load
from benchax.errors import NotAvailable, UsageError

FUNCTIONS = 16
SPIN_NS = 20_000
SLACK_NS = {"prebuilt": 1_000, "built": 1_000, "python": 10_000}
"""The largest excess over a known duration in the best case: for XLA's call of the functions, and of Python ones."""
TRIES = 50
READINGS = 1000


@lru_cache(maxsize=1)
def tier() -> Tier:
    """The clock in use in this process; found, loaded and tested at the first call.

    Raises:
        NotAvailable: there is no CPU, no tier loads, or none passes its test.
    """
    reasons: list[str] = []
    for name in LOADERS:
        try:
            check(load(name))
        except NotAvailable as error:
            reasons.append(f"{name}: {error.problem}")
        else:
            return Tier(name, tuple(reasons))
    if jax.default_backend() != "cpu":  # the three said the same, that its handlers are unknown there
        raise NotAvailable(f"there is no clock for compiled code on {jax.default_backend()} yet")
    raise NotAvailable("; ".join(reasons))


def nanoseconds(time: Any) -> np.ndarray:
    """Stamps u32[..., 2] as int64 nanoseconds [...]; what is later than these can say, such as never, is their last.

    Raises:
        UsageError: these are no stamps.
    """
    words = np.asarray(time)
    if words.dtype.kind not in "iu" or words.shape[-1:] != (2,):
        raise UsageError(f"{time!r} is no time", "times as `stamp` returns them: u32[..., 2]")
    words = words.astype(np.int64)
    high = words[..., 1]
    return np.where(high < 2**31, words[..., 0] + (high << 32), np.iinfo(np.int64).max)


def check(tier: Tier) -> None:
    """Raises `NotAvailable` with what was seen, if this clock is not to be trusted."""
    x = np.zeros(8, np.float32)
    try:
        # Compiled ahead, because the first stamp may well be asked for while somebody's function is being traced.
        program = jax.jit(partial(_sixteen, tier=tier)).lower(jax.ShapeDtypeStruct(x.shape, x.dtype)).compile()
        runs = [nanoseconds(program(x)) for _ in range(3)]
    except Exception as error:
        first_line, _, _ = str(error).partition("\n")
        raise NotAvailable(f"its test does not run: {type(error).__name__}: {first_line}") from None
    for times in runs:
        judge_order(times)
    least = np.min([times[:, 1] - times[:, 0] for times in runs], axis=0)
    # A busy machine makes a known duration longer, and only a wrong clock makes it shorter: the least of many counts.
    for _ in range(TRIES):
        if (judged := judge_length(least, tier)) is None:
            return
        times = nanoseconds(program(x))
        least = np.minimum(least, times[:, 1] - times[:, 0])
    raise NotAvailable(judged)


def _sixteen(x: jax.Array, tier: Tier) -> jax.Array:
    """u32[16, 2, 2]: start and end of each function."""
    times = []
    for i in range(FUNCTIONS):
        (x,), start = stamp(tier, [x * 1.5 + i])
        (x,), end = stamp(tier, [spin(tier, x, SPIN_NS)])
        times.append(jnp.stack([start, end]))
    return jnp.stack(times)


def judge_order(times: np.ndarray) -> None:
    """Raises `NotAvailable` unless the times [functions, 2] in ns, row by row, never step back."""
    if (np.diff(times.ravel()) < 0).any():
        raise NotAvailable("its readings are not in the order of the program")


def judge_length(least_ns: np.ndarray, tier: Tier) -> str | None:
    """The error in the least durations of the known ones; None if there is no error."""
    too_short, excess = least_ns.min() - SPIN_NS, np.median(least_ns) - SPIN_NS
    if too_short < 0:
        return f"a function of {SPIN_NS} ns was read as {least_ns.min()} ns"
    if excess > SLACK_NS[tier.name]:
        return f"functions of {SPIN_NS} ns were read as {int(excess) + SPIN_NS} ns at best"
    return None


def reading_s(tier: Tier) -> float:
    """Median seconds between two readings with nothing in between."""

    def program(x: jax.Array) -> jax.Array:
        return lax.scan(lambda x, _: stamp(tier, x), [x], None, length=READINGS)[1]

    return float(np.median(np.diff(nanoseconds(jax.jit(program)(np.zeros(8, np.float32)))))) / 1e9
