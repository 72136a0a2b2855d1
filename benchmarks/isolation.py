"""How late a limit is kept, and how soon work goes on after a kill: workers that are stopped for real.

Claimed, as medians:

    overshoot     a job over its limit is over, its process gone, at most 50 ms + 5 % after the limit
    next job      a new job (shipped, traced, compiled, run) right after a kill is complete within 100 ms

Beside them, for scale: what the same job costs in a worker that is warm, in a cold one, and in a new Python; and what
an empty job costs. All medians of interleaved rounds. The kills are of a function that never leaves a loop of XLA, and
of one that never leaves Python. On a machine with other work the limits of time mean little; the ratios at the end do.

    python benchmarks/isolation.py [--quick] [--neighbour]      about two minutes
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from calling import call
from report import busy_neighbour, header, load, note, table

from benchax.model import Failure
from benchax.workers.pool import Pool
from benchax.workers.task import CallLimits

OVERSHOOT_S, OVERSHOOT_SHARE, NEXT_S = 0.05, 0.05, 0.1
LIMITS_S = (0.1, 0.5, 2.0)


def small(say: Callable[..., None]) -> Any:
    say("compile")
    compiled = jax.jit(lambda x: jnp.tanh(x) @ x + 1).lower(jax.ShapeDtypeStruct((16, 16), np.float32)).compile()
    say("run")
    return jax.block_until_ready(compiled(np.ones((16, 16), np.float32)))


def empty(say: Callable[..., None]) -> Any:
    return np.zeros(1)


def stuck_in_xla(say: Callable[..., None]) -> Any:
    loop = jax.jit(lambda x: jax.lax.while_loop(lambda x: x < 1, lambda x: x * 0.5, x)).lower(0.5).compile()
    say("run")
    return jax.block_until_ready(loop(0.5))


def stuck_in_python(say: Callable[..., None]) -> Any:
    say("run")
    while True:
        pass


STUCK = {"a loop of XLA": stuck_in_xla, "a loop of Python": stuck_in_python}


class Stopwatch:
    """Notes when the stage "run" was announced, and when it was all over."""

    def __init__(self) -> None:
        self.run_at = 0.0

    def listen(self, message: dict[str, Any]) -> None:
        if message["stage"] == "run":
            self.run_at = perf_counter()


def do(pool: Pool, function: Callable[..., Any], limit_s: float = 60.0) -> tuple[Any, float, float]:
    """The answer, the seconds in all, the seconds from the announcement of "run" on."""
    watch = Stopwatch()
    begun = perf_counter()
    limits = CallLimits(lambda stage: limit_s if stage == "run" else 60.0)
    answer = pool.call(call, function, limits, on_message=watch.listen)
    over = perf_counter()
    return answer, over - begun, over - watch.run_at


def new_python() -> float:
    """The same job as a script would do it."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import isolation; isolation.small(lambda stage: None)"
    begun = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return perf_counter() - begun


def rounds(count: int) -> tuple[dict[tuple[str, float], list[float]], dict[str, list[float]]]:
    """Overshoots by what was stuck and the limit, and durations of jobs by kind."""
    late: dict[tuple[str, float], list[float]] = defaultdict(list)
    jobs: dict[str, list[float]] = defaultdict(list)
    with Pool() as pool, Pool(warm=False, reuse=False) as cold:
        cold.prepare()
        for i in range(count):
            note(f"round {i + 1} of {count}   {load()}")
            for limit_s in LIMITS_S:
                for name, function in STUCK.items():
                    pool.prepare()  # as a grid does it when nothing is timed
                    answer, _, running_s = do(pool, function, limit_s)
                    assert isinstance(answer, Failure), answer
                    assert answer.kind == "timeout", answer
                    late[name, limit_s].append(running_s - limit_s)
                    jobs["next job after a kill, on the standby"].append(_checked(pool, small))
                    jobs["the same job on a used worker"].append(_checked(pool, small))
                    jobs["an empty job"].append(_checked(pool, empty))
            jobs["the same job on a cold fork"].append(_checked(cold, small))
            jobs["the same job in a new Python"].append(new_python())
    return late, jobs


def _checked(pool: Pool, function: Callable[..., Any]) -> float:
    answer, elapsed_s, _ = do(pool, function)
    assert not isinstance(answer, Failure), answer
    return elapsed_s


def report(late: dict[tuple[str, float], list[float]], jobs: dict[str, list[float]]) -> bool:
    rows, is_kept = [], True
    for (name, limit_s), values in late.items():
        permitted_s = OVERSHOOT_S + OVERSHOOT_SHARE * limit_s
        is_kept &= median(values) <= permitted_s
        rows.append([f"{name}, {limit_s:g} s", *_ms(values), f"{permitted_s * 1e3:.0f}", _word(values, permitted_s)])
    print("Overshoot of a limit, in ms: until the process is gone and the answer is here")
    table(["stuck in, limit", "median", "worst", "n", "permitted", ""], rows)
    print("Jobs, in ms, from asking to having the answer")
    rows = []
    for name, values in jobs.items():
        permitted = name.startswith("next job")
        is_kept &= not permitted or median(values) <= NEXT_S
        limit = [f"{NEXT_S * 1e3:.0f}", _word(values, NEXT_S)] if permitted else ["", ""]
        rows.append([name, *_ms(values), *limit])
    table(["job", "median", "worst", "n", "permitted", ""], rows)
    base = median(jobs["the same job on a used worker"])
    for name in (
        "next job after a kill, on the standby",
        "the same job on a cold fork",
        "the same job in a new Python",
    ):
        print(f"{name}: {median(jobs[name]) / base:.1f} × the job on a used worker")
    return is_kept


def _ms(values: list[float]) -> list[str]:
    return [f"{median(values) * 1e3:.1f}", f"{max(values) * 1e3:.1f}", str(len(values))]


def _word(values: list[float], permitted_s: float) -> str:
    return "kept" if median(values) <= permitted_s else "NOT KEPT"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 rounds instead of 8")
    parser.add_argument("--neighbour", action="store_true", help="beside processes that compute in bursts")
    given = parser.parse_args()
    with busy_neighbour() if given.neighbour else nullcontext():
        beside = ", beside a busy neighbour" if given.neighbour else ""
        header("Limits and kills" + beside, ["psutil", "cloudpickle"])
        late, jobs = rounds(2 if given.quick else 8)
    is_kept = report(late, jobs)
    print(f"\n{load()}")
    return 0 if is_kept else 1


if __name__ == "__main__":
    # In the workers this file is found by name, as benchax's own entries are.
    sys.exit(__import__("isolation").main())
