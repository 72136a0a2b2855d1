"""`spin(us)`: a JAX function x -> x that takes `us` microseconds, by construction. The ruler of `accuracy.py`.

It waits in C, in the handler that benchax's own clock is tested with (`src/benchax/clock/handlers.c`). CPU only. On
top of `us` comes XLA's own dispatch of a custom call (about 0.1 µs). Chain calls by their operand; two calls with one
operand are one call to XLA, and a call whose result is not used is none.

    python benchmarks/spin.py      compares chains of calls with the truth
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import lru_cache, reduce
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp

from benchax.clock import handlers
from benchax.clock.handlers import Tier, load
from benchax.errors import NotAvailable


class NoSpin(Exception):
    """The handler cannot be built here, or does not keep time."""


def spin(us: float) -> Callable[[Any], Any]:
    """A function x -> x that takes `us` microseconds; jit it, chain it, or put it into a loop.

    Raises:
        NoSpin: benchax was installed without a C compiler, and there is none now.
    """
    tier = _native()

    def spinning(x: Any) -> Any:
        return handlers.spin(tier, jnp.asarray(x), round(us * 1000))

    spinning.__name__ = spinning.__qualname__ = f"spin_{us:g}us".replace(".", "_")
    return spinning


@lru_cache(maxsize=1)
def _native() -> Tier:
    for name in ("prebuilt", "built"):
        with contextlib.suppress(NotAvailable):
            return load(name)
    raise NoSpin(
        "there is no C compiler, which builds the function of known duration\n"
        "hint: install one (on Debian and Ubuntu: apt install gcc libc6-dev), or name it: CC=/path/to/compiler"
    )


def check(us: float, patience_s: float = 3.0) -> float:
    """What one call of `spin(us)` takes inside a program: the truth within 0.3 µs and 1 %.

    The slope between a short and a long chain of calls, so that what a program costs once cancels. Of each chain the
    least of many readings, because whatever disturbs a known wait can only lengthen it.

    Raises:
        NoSpin: it is not, however often it was tried in `patience_s`.
    """
    few = max(1, min(8, round(50 / max(us, 1))))  # long chains do not fit between two preemptions of a busy machine
    chains, calls = [_chain(us, few), _chain(us, 3 * few)], 2 * few
    x, least_ns, deadline = jnp.float32(1), [2**62, 2**62], perf_counter_ns() + patience_s * 1e9
    while True:
        for _ in range(10):
            least_ns = [min(least, _once_ns(chain, x)) for least, chain in zip(least_ns, chains, strict=True)]
        found = (least_ns[1] - least_ns[0]) / calls / 1000
        if abs(found - us) <= 0.3 + 0.01 * us:
            return found
        if perf_counter_ns() > deadline:
            raise NoSpin(
                f"spin({us:g}) takes {found:.2f} µs; expected {us:g} within 0.3 µs and 1 %. Is the machine very busy?"
            )


def _chain(us: float, n: int) -> Callable[[Any], Any]:
    once = spin(us)
    return jax.jit(lambda x: reduce(lambda y, _: once(y), range(n), x))


def _once_ns(fn: Callable[..., Any], x: Any) -> int:
    begun = perf_counter_ns()
    fn(x).block_until_ready()
    return perf_counter_ns() - begun


def main() -> None:
    print(f"{'true µs':>10}{'measured':>12}{'excess':>10}")
    for us in (0, 1, 10, 100, 1000):
        found = check(us)
        print(f"{us:>10}{found:>12.3f}{found - us:>10.3f}")


if __name__ == "__main__":
    main()
