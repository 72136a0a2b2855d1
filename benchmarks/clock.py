"""The clock inside compiled code: what a reading costs by each tier, and which ways of pinning it lie.

First table: nanoseconds between consecutive readings in one program, beside what else could be read. Second: sixteen
functions of known duration timed in one program, by readings that are pinned in four ways. A function is counted as
wrong if it came out shorter than it is, or more than half as long again; readings are counted as out of order if a
function ended before it began, or the next one began before that. The share is over all functions of all runs.

    python benchmarks/clock.py [--quick] [--neighbour]      about half a minute
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from report import busy_neighbour, header, load, table

from benchax.clock import handlers
from benchax.clock.handlers import LOADERS, Tier, nanoseconds
from benchax.errors import NotAvailable

READINGS = 256
FUNCTIONS, SPIN_NS = 16, 200_000
Pinned = Callable[[Tier, Any], tuple[Any, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the runs")
    parser.add_argument("--neighbour", action="store_true", help="beside processes that compute in bursts")
    given = parser.parse_args()
    runs = 20 if given.quick else 100
    with busy_neighbour() if given.neighbour else nullcontext():
        header("clock inside compiled code" + (", beside a busy neighbour" if given.neighbour else ""))
        found = {name: tier for name in LOADERS if isinstance(tier := _loaded(name), Tier)}
        cost(found, runs)
        ordering(next(iter(found.values())), runs)
        print(load())


def _loaded(name: handlers.Name) -> Tier | None:
    try:
        return handlers.load(name)
    except NotAvailable as error:
        print(f"{name}: {error}")
        return None


def cost(found: dict[handlers.Name, Tier], runs: int) -> None:
    rows = {f"stamp, {name}": _differences(_stamps(tier), runs) for name, tier in found.items()}
    best = next(iter(found.values()))
    rows |= {f"stamp, {best.name}, {n} more operands": _differences(_stamps(best, n), runs) for n in (4, 16, 64)}
    rows["pure_callback"] = _differences(_callbacks(), max(3, runs // 10))
    rows["perf_counter_ns in Python"] = np.diff([perf_counter_ns() for _ in range(10_000)])
    print("ns between consecutive readings")
    columns = ("median", "p5", "p95", "p99")
    table(["", *columns], [[name, *_percentiles(ns)] for name, ns in rows.items()])


def _percentiles(ns: np.ndarray) -> list[str]:
    return [f"{np.percentile(ns, q):.0f}" for q in (50, 5, 95, 99)]


def _differences(program: Callable[[], Any], runs: int) -> np.ndarray:
    return np.concatenate([np.diff(nanoseconds(program())) for _ in range(runs)])


def _stamps(tier: Tier, more: int = 0) -> Callable[[], Any]:
    """A program of READINGS stamps, each fed by the one before."""

    @jax.jit
    def program(*values: Any) -> Any:
        def step(values: Any, _: Any) -> Any:
            return handlers.stamp(tier, values)

        return lax.scan(step, list(values), None, length=READINGS)[1]

    values = [jnp.full(4, i, jnp.float32) for i in range(1 + more)]
    return lambda: program(*values)


def _callbacks() -> Callable[[], Any]:
    def read(_: Any) -> np.ndarray:
        ns = perf_counter_ns()
        return np.array([ns & 0xFFFFFFFF, ns >> 32], np.uint32)

    @jax.jit
    def program(time: Any) -> Any:
        def step(time: Any, _: Any) -> Any:
            time = jax.pure_callback(read, jax.ShapeDtypeStruct((2,), jnp.uint32), time)
            return time, time

        return lax.scan(step, time, None, length=READINGS)[1]

    return lambda: program(np.zeros(2, np.uint32))


# ---- pinning ----------------------------------------------------------------------------------------------------


def passed_through(tier: Tier, x: Any) -> tuple[Any, Any]:
    """As `benchax.clock.stamp`: what follows uses what the reading returns."""
    (x,), time = handlers.stamp(tier, [x])
    return x, time


def operand_only(tier: Tier, x: Any) -> tuple[Any, Any]:
    _, time = handlers.stamp(tier, [x])
    return x, time


def side_effect(tier: Tier, x: Any) -> tuple[Any, Any]:
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((2,), jnp.uint32)]
    call = jax.ffi.ffi_call(tier.target("stamp"), shapes, has_side_effect=True, input_output_aliases={0: 0})
    return x, call(x)[1]


def barrier(tier: Tier, x: Any) -> tuple[Any, Any]:
    _, time = handlers.stamp(tier, [x])
    return lax.optimization_barrier((x, time))


PINNINGS: dict[str, Pinned] = {
    "passed through (benchax.clock.stamp)": passed_through,
    "plain operand": operand_only,
    "has_side_effect=True": side_effect,
    "lax.optimization_barrier": barrier,
}


def ordering(tier: Tier, runs: int) -> None:
    print(f"{FUNCTIONS} functions of {SPIN_NS // 1000} µs in one program, {runs} runs: what was measured, in µs")
    rows = []
    for name, pinned in PINNINGS.items():
        program = jax.jit(_timed(tier, pinned))
        times = np.stack([nanoseconds(program(jnp.ones(64))) for _ in range(runs)])
        took = (times[..., 1] - times[..., 0]) / 1000
        true_us = SPIN_NS / 1000
        wrong = (took < true_us) | (took > 1.5 * true_us)
        back = np.diff(times.reshape(runs, -1), axis=1) < 0
        rows.append(
            [
                name,
                f"{np.median(took):.0f}",
                f"{took.min():.0f} to {took.max():.0f}",
                f"{wrong.mean():.0%}",
                f"{back.mean():.0%}",
            ]
        )
    table(["pinned by", "median", "range", "wrong", "out of order"], rows)


def _timed(tier: Tier, pinned: Pinned) -> Callable[[Any], Any]:
    """Functions that do not depend on one another: what a grid of functions over the same data is."""

    def program(x: Any) -> Any:
        times = []
        for i in range(FUNCTIONS):
            x, start = pinned(tier, x)
            y = handlers.spin(tier, jnp.sin(x * 1.5 + i), SPIN_NS)
            y, end = pinned(tier, y)
            if pinned is passed_through:
                # The next function waits for this one's end through the reading, as in a compiled grid.
                (x, _), _ = handlers.stamp(tier, [x, end])
            times.append(jnp.stack([start, end]))
        return jnp.stack(times)

    return program


if __name__ == "__main__":
    main()
