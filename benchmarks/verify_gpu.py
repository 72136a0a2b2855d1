"""Runs on an accelerator what the tests cannot see without one, and writes docs/verified/<device>-<date>.md.

    trace        kernels in a trace of `jax.profiler` beside CUPTI's
    timers       each beside a duration that is known: the slope of the wall time of a loop of products between two
                 trip counts, long enough (20 ms) that calling it is below 1 %. Within 5 % is a pass
    clock        the clock of compiled code: what a reading costs and how fine it is, and kernels of known duration
    chain        `in_graph`, `loop` and `device` beside the slope of a chain of products in one program, 1 µs to 10 ms.
                 `in_graph` within 10 % from 5 µs on is a pass
    deadlines    endless loops stop within 5 ms of their limits
    grid         the grid of functions × data with limits, inside one program
    effect       5 % more work is slower, and the same work is the same
    demo         `benchax demo`
    memory       `benchmarks/memory.py`, its quick form
    tests        those marked `gpu`
    --flush-l2   the same kernel after a buffer of twice the L2 cache was written, beside it warm: as nvbench's cold
                 mode, the writing is in no interval

Each part runs in a separate process, for two minutes at most, and all of them for eight. What fails is on the page, and
costs no other part. Without an accelerator it ends at once with exit code 2, says what is missing, and writes nothing.

    make verify-gpu [VERIFY='--flush-l2' | VERIFY='--part clock']
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchax.environment import memory_on_demand

ROOT = Path(__file__).parents[1]
TESTS = ("tests/measuring", "tests/clock", "tests/cli/test_profile.py")
TIMERS = ("device", "wall", "pipelined", "loop")
WITHIN, IN_GRAPH_WITHIN = 0.05, 0.10
IN_GRAPH_FROM_S = 5e-6
LATE_S = 5e-3
TRACED, TRIPS = 20, 8
L2_BYTES = 256 * 2**20
"""More than twice the cache of any GPU of today (B200: 126 MB)."""
LIMIT_S, TOTAL_S = 120, 480
"""Of a part, and of all of them."""
QUIET = {"store": "off", "memory": False, "verify": "off", "progress": False}


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


def run_command(title: str, command: Sequence[str], left_s: float = TOTAL_S, **more: str) -> Part:
    """What a program says, with these environment variables on top; it passes with exit code 0."""
    if left_s <= 0:
        return Part(title, False, f"not run, because the parts before it took {TOTAL_S} s")
    limit_s = min(LIMIT_S, left_s)
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | more, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return Part(title, False, f"it did not end within {limit_s:.3g} s")
    return Part(title, done.returncode == 0, f"{done.stdout}{done.stderr}"[-4000:])


def compare_with_slope(times_s: Mapping[str, float], slope_s: float) -> tuple[bool, str]:
    """Are the times by these timers the known one?"""
    ratios = {timer: time_s / slope_s for timer, time_s in times_s.items()}
    lines = [f"{timer:9}  {times_s[timer] * 1e3:.4g} ms, ratio {ratio:.4f}" for timer, ratio in ratios.items()]
    text = "\n".join([f"known: {slope_s * 1e3:.4g} ms; within {WITHIN:.0%} is a pass", *lines])
    return all(abs(ratio - 1) <= WITHIN for ratio in ratios.values()), text


def measure_timers() -> tuple[bool, str]:
    """Products that take so long (2 ms) that what lies between the kernels of a loop, some µs, does not matter."""
    import jax
    import jax.numpy as jnp

    import benchax

    @jax.jit
    def products(x: Any, trips: Any) -> Any:
        return jax.lax.fori_loop(0, trips, lambda _, y: jnp.tanh(jnp.matmul(y, x, precision="highest")), x)

    x = _square(4096)

    def wall_s(trips: int) -> float:
        return median(_timed(lambda: products(x, jnp.int32(trips))) for _ in range(9))

    # Twice as many trips take one known piece longer, whatever a call costs.
    slope_s = wall_s(2 * TRIPS) - wall_s(TRIPS)
    row = benchax.bench(products, x, jnp.int32(TRIPS), timer=",".join(TIMERS), max_time_s=1, **QUIET)
    found = {timer: row.find_summary(timer) for timer in TIMERS}
    if absent := [timer for timer, summary in found.items() if summary is None]:
        why = (f"{timer}: not measured, because {row.why_absent(f'samples.{timer}')}" for timer in absent)
        return False, "; ".join(why)
    return compare_with_slope({timer: summary.median_s for timer, summary in found.items() if summary}, slope_s)


def read_trace() -> tuple[bool, str]:
    """The kernels of one call in a trace of `jax.profiler`, beside CUPTI's sum of them."""
    import jax
    import jax.numpy as jnp

    import benchax

    f, x = jax.jit(lambda x: jnp.tanh(x @ x)), _square(4096)
    row = benchax.bench(f, x, timer="device", **QUIET)
    jax.block_until_ready(f(x))
    recorded = benchax.profile(f, x, runs=TRACED)
    found = row.find_summary("device")
    if found is None:
        return False, f"not measured, because {row.why_absent('samples.device')}"
    traced_s = sum(op.self_s for op in recorded.ops) / TRACED
    text = f"trace {traced_s * 1e6:.4g} µs, CUPTI {found.median_s * 1e6:.4g} µs: ratio {traced_s / found.median_s:.4f}"
    return abs(traced_s / found.median_s - 1) <= WITHIN, text


def measure_clock() -> tuple[bool, str]:
    """A stamp costs 5 µs at most, and no kernel of known duration is read as shorter."""
    import jax
    import jax.numpy as jnp

    from benchax import clock
    from benchax.clock import handlers

    tier = clock.tier()
    reading_s, step_s = handlers.reading_s(tier), handlers.step_s(tier)
    lines, passed = [f"tier {tier.name}, a reading {reading_s * 1e6:.3g} µs, step {step_s}"], reading_s <= LATE_S / 1000
    for ns in (1_000, 10_000, 100_000, 1_000_000, 10_000_000):

        @jax.jit
        def between(x: Any, ns: int = ns) -> Any:
            x, start = clock.stamp(x)
            _, end = clock.stamp(handlers.spin(tier, x, ns))
            return clock.elapsed_s(start, end)

        read_ns = [float(between(jnp.ones(8))) * 1e9 for _ in range(30)]
        passed &= min(read_ns) >= ns
        lines.append(f"a kernel of {ns:10} ns is read as {median(read_ns):10.0f} ns, at least {min(read_ns):10.0f}")
    return passed, "\n".join(lines)


def measure_chain() -> tuple[bool, str]:
    """In each size, a product n times and 2 n times in one program, without a loop that the host would steer."""
    import jax
    import jax.numpy as jnp

    import benchax

    passed, lines = True, [f"{'size':>6} {'slope':>10}  in_graph, loop, device: µs and ratio"]

    def product(x: Any) -> Any:
        return jnp.tanh(jnp.matmul(x, x, precision="highest"))

    for size, times in ((64, 64), (512, 64), (1024, 32), (2048, 16), (4096, 4), (8192, 2)):
        x = _square(size)

        def chain(x: Any, n: int) -> Any:
            for _ in range(n):
                x = product(x)
            return x

        short, long = (jax.jit(chain, static_argnums=1).lower(x, n).compile() for n in (times, 2 * times))
        pairs = [(_timed(lambda: short(x)), _timed(lambda: long(x))) for _ in range(20)]  # noqa: B023
        slope_s = median(b - a for a, b in pairs[5:]) / times
        row = benchax.bench(product, x, timer="in_graph,loop,device", max_time_s=1, **QUIET)
        cells = []
        for timer in ("in_graph", "loop", "device"):
            found = row.find_summary(timer)
            if found is None:
                cells.append(f"{timer} not measured ({row.why_absent(f'samples.{timer}')})")
            else:
                cells.append(f"{timer} {found.median_s * 1e6:.4g} ({found.median_s / slope_s:.3f})")
            is_judged = timer == "in_graph" and slope_s >= IN_GRAPH_FROM_S
            passed &= not is_judged or (found is not None and abs(found.median_s / slope_s - 1) <= IN_GRAPH_WITHIN)
        regime = next((s.regime for s in row.samples if s.timer == "in_graph"), None)
        lines.append(f"{size:6} {slope_s * 1e6:8.4g} µs  {', '.join(cells)}; {regime}")
    return passed, "\n".join(lines)


def measure_deadlines() -> tuple[bool, str]:
    """Endless loops of short and of long iterations, and what looking at the clock costs a scan that ends."""
    import jax
    import jax.numpy as jnp

    import benchax

    def endless(x: Any) -> Any:
        return jax.lax.while_loop(lambda x: x[0, 0] > -2.0, lambda x: jnp.tanh(x @ x), x)

    def long_scan(x: Any) -> Any:
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ x), None), x, None, 10**8)[0]

    def scan(x: Any) -> Any:
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ x), None), x, None, 2_000)[0]

    passed, lines = True, []
    for name, f in (("while", endless), ("scan", long_scan)):
        for size in (16, 1024):
            stopping = benchax.with_deadline(f, 0.1, "partial")
            x = _square(size)
            jax.block_until_ready(stopping(x))
            late_s = [_timed(lambda: stopping(x)) - 0.1 for _ in range(10)]  # noqa: B023
            passed &= max(late_s) <= LATE_S and bool(stopping(x)[1])
            lines.append(
                f"{name} of {size} × {size}: stops {median(late_s) * 1e3:.3g} ms late, {max(late_s) * 1e3:.3g}"
            )
    for size in (16, 256, 1024):
        x = _square(size)
        plain, limited = jax.jit(scan), benchax.with_deadline(scan, 60.0)
        pairs = [(_timed(lambda: plain(x)), _timed(lambda: limited(x))) for _ in range(7)][2:]  # noqa: B023
        lines.append(f"a scan of {size} × {size} that ends takes {median(b / a for a, b in pairs):.3f} of the time")
    return passed, "\n".join(lines)


def measure_grid() -> tuple[bool, str]:
    """Functions × data in one program, one of which has no end."""
    import jax
    import jax.numpy as jnp

    import benchax

    def endless(x: Any) -> Any:
        return jax.lax.while_loop(lambda x: jnp.all(x > -2.0), lambda x: x * 0.5 + 1.0, x)

    grid = benchax.compiled_grid({"sin": jnp.sin, "sort": jnp.sort, "endless": endless}, repeats=10)
    results = {n: grid(jnp.linspace(0.1, 0.9, n), timeout_s=0.2) for n in (4, 64, 1024)}
    passed = all(list(r.status_names) == ["ok", "ok", "timed_out"] for r in results.values())
    return passed, "\n".join(f"n = {n}\n{result}" for n, result in results.items())


def measure_effect() -> tuple[bool, str]:
    import jax.numpy as jnp

    import benchax

    x = _square(2048)

    def chain(trips: int) -> Any:
        def f(x: Any) -> Any:
            y = x
            for _ in range(trips):
                y = jnp.tanh(y @ x)
            return x + 0.0 * y  # the same result; y could be NaN, so XLA keeps the work

        return f

    results = [benchax.compare({"before": chain(20), "after": chain(n)}, x, progress=False) for n in (21, 20)]
    verdicts = [result.comparisons[0].verdict for result in results]
    return verdicts == ["slower", "same"], "\n\n".join(map(str, results))


def measure_cold_l2() -> tuple[bool, str]:
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
    return times[True] > times[False], text


def _square(size: int) -> Any:
    """Products of it stay finite."""
    import jax
    import jax.numpy as jnp

    return jax.random.normal(jax.random.key(0), (size, size), jnp.float32) / size**0.5


def _timed(call: Callable[[], Any]) -> float:
    import jax

    begun = perf_counter()
    jax.block_until_ready(call())
    return perf_counter() - begun


PARTS: dict[str, tuple[str, Callable[[], tuple[bool, str]]]] = {
    "timers": ("timers next to a known duration", measure_timers),
    "trace": ("a trace next to CUPTI", read_trace),
    "clock": ("the clock of compiled code", measure_clock),
    "chain": ("timers next to a chain of products", measure_chain),
    "deadlines": ("deadlines", measure_deadlines),
    "grid": ("a compiled grid", measure_grid),
    "effect": ("5 % more work, and the same work", measure_effect),
    "l2": ("L2 flushed", measure_cold_l2),
}
"""By name: the title, and what passes or not and says why."""


def run_part(name: str) -> int:
    try:
        passed, text = PARTS[name][1]()
    except Exception:
        passed, text = False, traceback.format_exc(limit=-4)
    print(text)
    return 0 if passed else 1


def run_all(flush_l2: bool) -> list[Part]:
    until, this = perf_counter() + TOTAL_S, [sys.executable, __file__, "--part"]
    commands = {title: [*this, name] for name, (title, _) in PARTS.items() if name != "l2" or flush_l2}
    commands["demo"] = [sys.executable, "-m", "benchax", "demo"]
    commands["memory"] = [sys.executable, "benchmarks/memory.py", "--quick"]
    commands["tests"] = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", *TESTS]
    parts = []
    for title, command in commands.items():
        print(f"{title} …", file=sys.stderr)
        parts.append(run_command(title, command, until - perf_counter(), TEST_ON_GPU="1"))
    return parts


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
    parser.add_argument("--part", choices=PARTS, help="run this part alone, and print what it says")
    given = parser.parse_args(words)
    os.environ.update(memory_on_demand())  # this process and those that it starts share the device
    if given.part:
        return run_part(given.part)
    device = find_accelerator()
    import jax

    parts = run_all(given.flush_l2)
    folder = ROOT / "docs" / "verified"
    folder.mkdir(exist_ok=True)
    target = folder / report_name(device.device_kind, datetime.now(UTC).date())
    target.write_text(render(device.device_kind, f"jax {jax.__version__}", parts), encoding="utf-8")
    print(target.relative_to(ROOT))
    return 0 if all(part.passed for part in parts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
