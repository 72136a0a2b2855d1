"""How far the timer `device` can be believed on CPU, and what recording does to what is recorded.

    known      functions of known duration (`spin.py`), 2 µs to 10 ms: ratios to the truth, beside `in_graph`. What
               `device` does not refuse should be within 5 %.
    workloads  `device` beside `in_graph` and `wall`. No truth is known, and two of the three answer other questions:
               `in_graph` runs the function inside a loop, where XLA:CPU lets no two operations overlap and may choose
               other kernels; `wall` contains dispatch and the hand-over.
    recording  a call while it is recorded against the same call when it is not, in turns; and what that comes to for
               each operation.

Each figure is the median of the rounds, the range in brackets.

    python benchmarks/device_time.py [--quick] [--rounds N]      5 rounds, about 3 minutes
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
from report import header, load, note, table
from spin import NoSpin, check, spin

import benchax
from benchax import workloads
from benchax.measuring.inputs import make_inputs
from benchax.measuring.timers.device import event_cost
from benchax.profiling import events
from benchax.profiling.operations import STATS, ProgramRun, device_runs
from benchax.profiling.profile import session

TRUTHS_US = (2, 5, 10, 30, 100, 300, 1000, 3000, 10_000)
TIMERS = ("device", "in_graph", "wall")
Found = dict[tuple[str, str], list[float]]
"""(row, column) → one value for each round."""


def by_timers(fn: Callable[..., Any], args: tuple[Any, ...], name: str, found: Found, truth_us: float = 1.0) -> None:
    row = benchax.bench(
        fn, *args, timer=",".join(TIMERS), verify="off", memory=False, store="off", stages="samples", max_time_s=0.5
    )
    for timer in TIMERS:
        if summary := row.find_summary(timer):
            found.setdefault((name, timer), []).append(summary.median_s * 1e6 / truth_us)
        else:
            note(f"{timer} of {name}: not measured, because {row.why_absent(f'samples.{timer}')}")


def by_recording(fn: Callable[..., Any], args: tuple[Any, ...], name: str, found: Found, turns: int = 5) -> None:
    """µs of a call, plain and recorded, and what the difference comes to for each operation, in ns."""
    compiled = jax.jit(fn)
    plain_us: list[float] = []
    recorded_us: list[float] = []
    run: ProgramRun | None = None
    for _ in range(turns):
        plain_us += [_once_us(compiled, args) for _ in range(20)]
        with session() as recording:
            # The first is a cold one.
            recorded_us += [_once_us(compiled, args) for _ in range(21)][1:]
        run = device_runs(events.read(recording.xspace, STATS))[-1]
    assert run is not None
    operations = run.outer + run.inner
    found.setdefault((name, "plain µs"), []).append(median(plain_us))
    found.setdefault((name, "recorded µs"), []).append(median(recorded_us))
    found.setdefault((name, "operations"), []).append(operations)
    found.setdefault((name, "ns each"), []).append((min(recorded_us) - min(plain_us)) / operations * 1000)


def _once_us(compiled: Callable[..., Any], args: tuple[Any, ...]) -> float:
    begun = perf_counter_ns()
    jax.block_until_ready(compiled(*args))
    return (perf_counter_ns() - begun) / 1000


def functions() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The workloads, a loop of short steps, and a product that XLA:CPU hands to other threads."""
    cases = {case.id.label: (case.fn, make_inputs(case, 0).args) for case in workloads.cases()}
    a = jax.random.normal(jax.random.key(0), (512, 512))
    return {
        **cases,
        "flip 300 times": (lambda x: jax.lax.fori_loop(0, 300, lambda _, y: jnp.flip(y) + 1, x), (jnp.ones(1024),)),
        "product": (lambda a: a.T @ a, (a,)),
    }


def cell(values: list[float] | None, form: str) -> str:
    if not values:
        return "not measured"
    middle = form.format(median(values))
    return middle if len(values) == 1 else f"{middle} [{form.format(min(values))}–{form.format(max(values))}]"


def shown(title: str, found: Found, columns: tuple[str, ...], form: str) -> None:
    print(title)
    rows = list(dict.fromkeys(row for row, _ in found))
    table(["", *columns], [[row, *[cell(found.get((row, column)), form) for column in columns]] for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 round instead of 5")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    given = parser.parse_args()
    header("the timer device on CPU")
    try:
        check(10)
    except NoSpin as error:
        raise SystemExit(str(error)) from None
    known: Found = {}
    real: Found = {}
    recording: Found = {}
    rounds = given.rounds or (1 if given.quick else 5)
    for i in range(rounds):
        for us in TRUTHS_US:
            by_timers(spin(us), (jnp.float32(1),), f"{us} µs", known, us)
        for name, (fn, args) in functions().items():
            by_timers(fn, args, name, real)
            by_recording(fn, args, name, recording)
        note(f"round {i + 1} of {rounds}, {load()}")
    cost = event_cost()
    print(
        f"what an operation's recording adds, as the timer has it: {cost.outer_s * 1e9:.0f} ns, in a loop "
        f"{cost.inner_s * 1e9:.0f} ns\n"
    )
    shown("known durations: ratio to the truth", known, TIMERS, "{:.3f}")
    shown("workloads: µs", real, TIMERS, "{:.1f}")
    shown("recording: a call", recording, ("plain µs", "recorded µs", "operations", "ns each"), "{:.0f}")
    print(load())


if __name__ == "__main__":
    main()
