"""Runs on an accelerator what the tests cannot see without one, and writes docs/verified/<device>-<date>.md.

    tests        those marked `gpu`
    benchmarks   memory, by its quick form
    trace        kernels in a trace of `jax.profiler` beside CUPTI's
    timers       each beside a duration that is known: the slope of the wall time of a loop of products between two
                 trip counts, long enough (20 ms) that calling it is below 1 %. Within 5 % is a pass
    --flush-l2   the same kernel after a buffer of twice the L2 cache was written, beside it warm: as nvbench's cold
                 mode, the writing is in no interval

Without an accelerator it ends at once with exit code 2, says what is missing, and writes nothing.

    make verify-gpu [VERIFY='--flush-l2']        about ten minutes
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchax.environment import memory_on_demand

ROOT = Path(__file__).parents[1]
TESTS = ("tests/measuring", "tests/cli/test_profile.py")
BENCHMARKS = ("memory",)
TIMERS = ("device", "wall", "pipelined", "loop")
WITHIN = 0.05
TRACED, TRIPS = 20, 8
L2_BYTES = 256 * 2**20
"""More than twice the cache of any GPU of today (B200: 126 MB)."""


@dataclass(frozen=True)
class Part:
    """What one part of the verification said."""

    title: str
    passed: bool
    text: str


def find_accelerator() -> Any:
    """The first accelerator of JAX.

    Raises:
        SystemExit: 2, there is none; says what JAX has.
    """
    import jax

    try:
        devices = jax.devices()
    except RuntimeError as error:
        return _lack(f"JAX cannot start its backend: {error}")
    if devices[0].platform == "cpu":
        return _lack(f"there is no accelerator: JAX {jax.__version__} has {len(devices)} device(s) of platform 'cpu'")
    return devices[0]


def _lack(what: str) -> Any:
    print(f"{what}\nexpected a GPU, and a jaxlib for it (pip install 'jax[cuda13]')", file=sys.stderr)
    raise SystemExit(2)


def run_command(title: str, command: Sequence[str], **more: str) -> Part:
    """What a program says, with these environment variables on top; it passes with exit code 0."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | more)
    return Part(title, done.returncode == 0, f"{done.stdout}{done.stderr}"[-4000:])


def compare_with_slope(times_s: Mapping[str, float], slope_s: float) -> Part:
    """Are the times by these timers the known one?"""
    ratios = {timer: time_s / slope_s for timer, time_s in times_s.items()}
    lines = [f"{timer:9}  {times_s[timer] * 1e3:.4g} ms, ratio {ratio:.4f}" for timer, ratio in ratios.items()]
    text = "\n".join([f"known: {slope_s * 1e3:.4g} ms; within {WITHIN:.0%} is a pass", *lines])
    return Part("timers next to a known duration", all(abs(ratio - 1) <= WITHIN for ratio in ratios.values()), text)


def measure_timers() -> Part:
    """Products that take so long (2 ms) that what lies between the kernels of a loop, some µs, does not matter."""
    import jax
    import jax.numpy as jnp

    import benchax

    @jax.jit
    def products(x: Any, trips: Any) -> Any:
        return jax.lax.fori_loop(0, trips, lambda _, y: jnp.tanh(jnp.matmul(y, x, precision="highest")), x)

    x = jax.random.normal(jax.random.key(0), (4096, 4096), jnp.float32) / 64

    def wall_s(trips: int) -> float:
        return median(_timed(lambda: products(x, jnp.int32(trips))) for _ in range(9))

    # Twice as many trips take one known piece longer, whatever a call costs.
    slope_s = wall_s(2 * TRIPS) - wall_s(TRIPS)
    row = benchax.bench(
        products, x, jnp.int32(TRIPS), timer=",".join(TIMERS), store="off", memory=False, verify="off", max_time_s=1
    )
    found = {timer: row.find_summary(timer) for timer in TIMERS}
    if absent := [timer for timer, summary in found.items() if summary is None]:
        why = "; ".join(f"{timer}: not measured, because {row.why_absent(f'samples.{timer}')}" for timer in absent)
        return Part("timers next to a known duration", False, why)
    return compare_with_slope({timer: summary.median_s for timer, summary in found.items() if summary}, slope_s)


def read_trace() -> Part:
    """The kernels of one call in a trace of `jax.profiler`, beside CUPTI's sum of them."""
    import jax
    import jax.numpy as jnp

    import benchax

    f = jax.jit(lambda x: jnp.tanh(x @ x))
    x = jax.random.normal(jax.random.key(0), (4096, 4096), jnp.float32) / 64
    row = benchax.bench(f, x, timer="device", store="off", memory=False, verify="off")
    jax.block_until_ready(f(x))
    recorded = benchax.profile(f, x, runs=TRACED)
    found = row.find_summary("device")
    if found is None:
        return Part("a trace next to CUPTI", False, f"not measured, because {row.why_absent('samples.device')}")
    traced_s = sum(op.self_s for op in recorded.ops) / TRACED
    text = f"trace {traced_s * 1e6:.4g} µs, CUPTI {found.median_s * 1e6:.4g} µs: ratio {traced_s / found.median_s:.4f}"
    return Part("a trace next to CUPTI", abs(traced_s / found.median_s - 1) <= WITHIN, text)


def measure_cold_l2() -> Part:
    import jax
    import jax.numpy as jnp

    x = jnp.ones(2**20, jnp.float32)
    buffer = jnp.zeros(2 * L2_BYTES // 4, jnp.float32)
    read, write = jax.jit(jnp.sum), jax.jit(lambda b: b + 1)

    def once(is_cold: bool) -> float:
        if is_cold:
            jax.block_until_ready(write(buffer))
        return _timed(lambda: read(x))

    times = {is_cold: median(once(is_cold) for _ in range(200)) for is_cold in (False, True)}
    text = f"warm {times[False] * 1e6:.4g} µs, cold {times[True] * 1e6:.4g} µs (wall, dispatch included)"
    return Part("L2 flushed", times[True] > times[False], text)


def _timed(call: Callable[[], Any]) -> float:
    import jax

    begun = perf_counter()
    jax.block_until_ready(call())
    return perf_counter() - begun


def report_name(kind: str, day: date) -> str:
    """nvidia-h200-2026-11-23.md"""
    return f"{re.sub(r'[^a-z0-9]+', '-', kind.lower()).strip('-')}-{day.isoformat()}.md"


def render(kind: str, versions: str, parts: Sequence[Part]) -> str:
    """The page, with what failed as plainly as what passed."""
    blocks = [f"# {kind}", versions]
    for part in parts:
        blocks.append(f"## {part.title}: {'passed' if part.passed else 'FAILED'}\n\n```\n{part.text.strip()}\n```")
    return "\n\n".join(blocks) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flush-l2", action="store_true", help="also time a kernel with a cold L2 cache")
    given = parser.parse_args(words)
    os.environ.update(memory_on_demand())  # this process and those that it starts share the device
    device = find_accelerator()
    import jax

    tests = run_command("tests", [sys.executable, "-m", "pytest", "-m", "gpu", "-q", *TESTS], TEST_ON_GPU="1")
    scripts = (run_command(n, [sys.executable, f"benchmarks/{n}.py", "--quick"]) for n in BENCHMARKS)
    parts = [tests, *scripts, measure_timers(), read_trace(), *([measure_cold_l2()] if given.flush_l2 else [])]
    folder = ROOT / "docs" / "verified"
    folder.mkdir(exist_ok=True)
    target = folder / report_name(device.device_kind, datetime.now(UTC).date())
    target.write_text(render(device.device_kind, f"jax {jax.__version__}", parts), encoding="utf-8")
    print(target.relative_to(ROOT))
    return 0 if all(part.passed for part in parts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
