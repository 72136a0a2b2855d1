"""`no_recompile` and `max_compiles`: an error where a block compiles more than it should, with the reasons in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import CodeType

from benchax.errors import BenchaxError, NotMeasured, UsageError
from benchax.results.watch import Compile, ReasonKind, Watch
from benchax.units import seconds
from benchax.watching.watch import watch

MOST = 10
"""Lines for one function."""
HINTS: dict[ReasonKind, str] = {
    "first call": "call each function once before the block, with the shapes and dtypes that it will meet inside",
    "shape": "pad to a few sizes, or let the lengths of the data be the same in each step",
    "dtype": "convert before the call, so that it always sees one dtype",
    "weak type": "give Python numbers a dtype before the call: jnp.float32(1.0)",
    "static": "pass what takes many values as an array, and keep static what takes few",
    "new function": "make the function, and jax.jit it, once outside of the loop",
    "structure": "keep one tree structure: every key there from the first call on",
    "committed": "jax.device_put the arguments in the same way before the first call",
    "sharding": "jax.device_put the arguments in the same way before the first call",
    "keyword": "give each argument always by position, or always by name",
    "settings": "jax.jit the function once, and keep what it returns",
    "config": "set the configuration before the first call",
    "transformation": "warm up under the same transformation, or jax.jit what is outside of it",
    "cleared": "do not clear JAX's caches between the calls",
}


class RecompileError(BenchaxError, AssertionError):
    """More was compiled than was permitted. `watch` is what was seen.

    Example:
        >>> try:
        ...     with benchax.no_recompile():
        ...         _ = jax.jit(lambda x: x + 1)(np.ones(3))
        ... except benchax.RecompileError as error:
        ...     print(len(error.watch.compiles))
        1
    """

    watch: Watch | None = None


@contextlib.contextmanager
def max_compiles(n: int, *, eager: bool = False, ignored: frozenset[CodeType] = frozenset()) -> Iterator[Watch]:
    """Permits at most `n` programs to be compiled inside the block, and by this thread; also a decorator.

    First calls count. So does a program that comes from the persistent cache, since whether it is there is chance.

    Args:
        n: programs of jitted functions.
        eager: count also the one-operation programs of operations outside of jitted functions, such as jnp.ones(3).
        ignored: as for `watch`.

    Raises:
        RecompileError: at the end of the block, with every function, line and reason. An exception of the block itself
            goes before.
        NotMeasured: the events that it counts by were taken away inside the block.
        UsageError: n is no number of programs.

    Example:
        >>> with benchax.max_compiles(1):
        ...     _ = jax.jit(lambda x: x + 1)(np.ones(3))
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise UsageError(f"max_compiles({n!r}) cannot be", "a whole number from 0 up")
    with watch(ignored=ignored) as seen:
        yield seen
    _judge(seen, n, eager, f"max_compiles({n})")


@contextlib.contextmanager
def no_recompile(*, eager: bool = False) -> Iterator[Watch]:
    """Permits no compilation inside the block: every function in it must be warm. `max_compiles(0)` by another name.

    Example:
        >>> step = jax.jit(lambda x: x + 1)
        >>> _ = step(np.ones(3))
        >>> with benchax.no_recompile():
        ...     _ = step(np.zeros(3))
    """
    with watch() as seen:
        yield seen
    _judge(seen, 0, eager, "no_recompile()")


def _judge(seen: Watch, n: int, eager: bool, what: str) -> None:
    counted = [c for c in seen.compiles if eager or not c.is_eager]
    if len(counted) > n:
        error = RecompileError(_problem(counted, what), _describe_expected(n, seen, eager), _hint(counted))
        error.watch = seen
        raise error
    # Behind the count: what was seen is an error even where more may have been missed.
    if seen.lost_events or seen.remarks:
        why = "; ".join(r.message for r in seen.remarks) or "jax.monitoring.clear_event_listeners() was called inside"
        raise NotMeasured(f"the compilations inside {what} could not all be counted: {why}")


def _problem(counted: list[Compile], what: str) -> str:
    by_function: dict[tuple[str, str | None], list[Compile]] = {}
    for c in counted:
        by_function.setdefault((c.function, c.defined), []).append(c)
    lines = [f"{len(counted)} {'program was' if len(counted) == 1 else 'programs were'} compiled inside {what}"]
    for (name, defined), found in sorted(by_function.items(), key=lambda item: -_lost_seconds(item[1])):
        place = f" (defined at {defined})" if defined else ""
        lines.append(f"  {name}{place}: {len(found)}, {seconds(_lost_seconds(found))} by JAX's clock")
        lines += [f"    at {c.where or 'an unknown line'}: {c.why}" for c in found[:MOST]]
        lines += [f"    and {len(found) - MOST} more"] if len(found) > MOST else []
    return "\n".join(lines)


def _lost_seconds(found: list[Compile]) -> float:
    return sum(c.total_s for c in found)


def _describe_expected(n: int, seen: Watch, eager: bool) -> str:
    permitted = f"at most {n}" if n else "none"
    if eager:
        return f"{permitted}, eager operations included"
    others = f", of which there were {len(seen.eager)}" if seen.eager else ""
    return f"{permitted}; eager operations are not counted{others}"


def _hint(counted: list[Compile]) -> str:
    kinds = dict.fromkeys(reason.kind for c in counted for reason in c.reasons)
    return "\n      ".join(HINTS[kind] for kind in kinds if kind in HINTS)
