"""Finds the disturbances of this machine, their effect on numbers, and remedies.

`examine` watches the machine for a second and returns a `Diagnosis`: readings (`environment.py`, `noise.py`) and the
advice that follows from them. It prints nothing, changes nothing, and works without JAX. Run it in a separate process:
Python's other threads look like a busy machine. Advice is grouped by cause; its codes are stable.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import repeat

from benchax.environment import Machine, capture, machine
from benchax.errors import NotAvailable, UsageError
from benchax.machine import noise
from benchax.machine.noise import BUSY_SHARE, COMPARED_ROUNDS, STEAL_SHARE, Gaps, ReadingSpread, note_pace
from benchax.model import Environment, Noise, Remark, Severity
from benchax.units import number, percent, seconds

# The doctor reports values above these limits. 5 %: by default, a comparison calls smaller differences "same".
LOST_SHARE = 0.02
SPREAD, EFFECT = 0.05, 0.05
CLOCK_S = 1e-6

SIDE_BY_SIDE = "compare side by side, in one session"
DEBUGGING = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_enable_checks")


@dataclass(frozen=True)
class Clock:
    """`time.perf_counter_ns`."""

    resolution_s: float
    """Smallest step seen."""
    reading_s: float
    """Cost of one reading, with the Python loop around it."""


@dataclass(frozen=True)
class CompiledClock:
    """The clock inside compiled code (`benchax.clock`)."""

    tier: str | None = None
    """Which one is used; None: none works here."""
    reading_s: float | None = None
    reasons: tuple[str, ...] = ()
    """Why the better ones do not serve."""


@dataclass(frozen=True)
class Interpreter:
    """The factors that slow Python itself down in this process."""

    is_debug_build: bool = False
    tracers: tuple[str, ...] = ()
    """Tools that Python calls for every line or call: a debugger, coverage, a profiler."""
    threads: int = 1


@dataclass(frozen=True)
class Diagnosis:
    """The findings of `examine`. `advice` follows from the rest."""

    environment: Environment
    machine: Machine
    interpreter: Interpreter
    clock: Clock
    compiled_clock: CompiledClock
    noise: Noise
    gaps: Gaps
    spread: ReadingSpread | None
    """The spread of a fixed piece of pure Python, 200 samples of about 0.1 ms. None: the clock is too coarse."""
    smallest_effect: float | None
    """A share; `noise.smallest_effect` explains it. None: the clock is too coarse."""
    advice: tuple[Remark, ...] = ()


def spin() -> int:
    """A fixed piece of work that touches no memory to speak of."""
    total = 0
    for i in range(4000):
        total += i
    return total


def interpreter() -> Interpreter:
    hooks = {"sys.settrace": sys.gettrace(), "sys.setprofile": sys.getprofile()}
    tracers = [f"{getattr(hook, '__module__', '?')} ({how})" for how, hook in hooks.items() if hook is not None]
    # Since Python 3.12, coverage, debuggers, and profilers may register here instead.
    monitoring = getattr(sys, "monitoring", None)
    tracers += [name for i in range(6) if monitoring and (name := monitoring.get_tool(i))]
    # Debug builds of CPython, and only they, have this function.
    return Interpreter(hasattr(sys, "gettotalrefcount"), tuple(tracers), threading.active_count())


def compiled_clock() -> CompiledClock:
    """Loads and tests it, in about 0.2 s. Without JAX there is no such clock."""
    try:
        from benchax.clock.handlers import reading_s, tier
    except ImportError as missing:
        return CompiledClock(reasons=(str(missing),))
    try:
        found = tier()
    except NotAvailable as missing:
        return CompiledClock(reasons=(missing.problem,))
    return CompiledClock(found.name, reading_s(found), found.reasons)


def examine(
    seconds: float = 1.0, clock: Callable[[], int] = time.perf_counter_ns, work: Callable[[], object] = spin
) -> Diagnosis:
    """Watches this machine for `seconds`, and about 0.1 s more.

    Starts JAX's backend where JAX is installed: its idle threads belong to the picture.

    Args:
        clock: in nanoseconds.
        work: the piece of work whose readings show how steady the machine is.

    Raises:
        UsageError: `seconds` is not a positive, finite number.
        NotMeasured: the clock does not move.
    """
    if not 0 < seconds < math.inf:
        raise UsageError(
            f"cannot watch the machine for {seconds!r} seconds", "a number of seconds above 0, such as 1.0"
        )
    where = capture()
    found = examine_clock(clock)
    with noise.paused_gc():
        begun = noise.start()
        gaps, pairs = noise.watch(seconds, clock, work)
        meanwhile = noise.finish(begun)
    diagnosis = Diagnosis(
        environment=where,
        machine=machine(),
        interpreter=interpreter(),
        clock=found,
        compiled_clock=compiled_clock(),
        noise=replace(meanwhile, pace_scatter=note_pace(where)),
        gaps=gaps,
        spread=noise.spread([first for first, _ in pairs], found.resolution_s),
        smallest_effect=noise.smallest_effect(pairs, found.resolution_s),
    )
    return replace(diagnosis, advice=advise(diagnosis))


def examine_clock(clock: Callable[[], int], readings: int = 10_000) -> Clock:
    begun = clock()
    for _ in repeat(None, readings - 1):
        clock()
    elapsed_ns = clock() - begun
    return Clock(noise.smallest_step_ns(clock) / 1e9, elapsed_ns / readings / 1e9)


@dataclass(frozen=True)
class Advice:
    """A disturbance: when it is there, and the text about its effect on numbers and the remedy."""

    code: str
    severity: Severity
    applies: Callable[[Diagnosis], object]
    says: Callable[[Diagnosis], str]


def _slowed_by(python: Interpreter) -> list[str]:
    watched = [f"is watched by {tracer}" for tracer in python.tracers]
    return ["is a debug build", *watched] if python.is_debug_build else watched


def _usable_cores(d: Diagnosis) -> int:
    """0 if it is not known."""
    return len(d.environment.affinity or ()) or d.environment.cores or 0


def _debugging(d: Diagnosis) -> list[str]:
    return [name for name in DEBUGGING if d.environment.config.get(name)]


def _is_busy(d: Diagnosis) -> bool:
    return (d.noise.others_share or 0.0) > BUSY_SHARE


ADVICE = (
    # Python
    Advice(
        "slow-python",
        "error",
        lambda d: _slowed_by(d.interpreter),
        lambda d: (
            f"This Python {' and '.join(_slowed_by(d.interpreter))}. "
            "Tracing, lowering and dispatch take much longer in it. "
            "Measure without: the usual build of Python, pytest --no-cov, no debugger."
        ),
    ),
    Advice(
        "threads",
        "info",
        lambda d: d.interpreter.threads > 1,
        lambda d: (
            f"{d.interpreter.threads} Python threads live in this process. "
            f"While one computes the others wait, up to {seconds(sys.getswitchinterval())} at a time. "
            "Measure in a separate process."
        ),
    ),
    # JAX
    Advice(
        "jax-debugging",
        "error",
        _debugging,
        lambda d: (
            f"JAX is looking for errors ({', '.join(_debugging(d))}). "
            "The times do not hold for the program that users run. "
            f"Switch it off: {' '.join(f'{name.upper()}=0' for name in _debugging(d))}, or jax.config.update."
        ),
    ),
    Advice(
        "inline-dispatch",
        "info",
        lambda d: d.environment.config.get("jax_cpu_enable_async_dispatch") is False and d.environment.backend == "cpu",
        lambda d: (
            "Asynchronous dispatch is off (jax_cpu_enable_async_dispatch): a call returns when it is done. "
            "Small functions get steadier, big ones may get slower. Compare only with runs that have it off too."
        ),
    ),
    Advice(
        "compile-cache",
        "info",
        lambda d: d.environment.config.get("jax_compilation_cache_dir"),
        lambda d: (
            f"JAX's persistent compilation cache is on ({d.environment.config['jax_compilation_cache_dir']}). "
            "A compile time can be the time to read the cache; each row says so. "
            "To measure compiling, unset JAX_COMPILATION_CACHE_DIR."
        ),
    ),
    Advice(
        "flags",
        "info",
        lambda d: d.environment.flags,
        lambda d: (
            f"Set in the environment: {' '.join(f'{name}={value}' for name, value in d.environment.flags.items())}. "
            "Such variables change programs or their speed. Compare only with runs that had the same."
        ),
    ),
    # neighbours
    Advice(
        "stolen",
        "warning",
        lambda d: (d.noise.steal_share or 0.0) > STEAL_SHARE,
        lambda d: (
            f"The hypervisor took {percent(d.noise.steal_share or 0.0)} of the CPU time. "
            "Samples pause for milliseconds, and times change with the neighbours. "
            f"Keep samples short, {SIDE_BY_SIDE}, or use a machine with dedicated cores."
        ),
    ),
    Advice(
        "busy",
        "warning",
        _is_busy,
        lambda d: (
            f"Other processes used {percent(d.noise.others_share or 0.0)} of the CPU. "
            "They take cores, caches and memory bandwidth: times come out long, and differ from run to run. "
            f"End them (top shows them), or {SIDE_BY_SIDE}."
        ),
    ),
    Advice(
        "loaded",
        "warning",
        lambda d: not _is_busy(d) and (d.noise.load_1m or 0.0) > (d.environment.cores or math.inf),
        lambda d: (
            f"The load average of the last minute is {number(d.noise.load_1m or 0.0)} on {d.environment.cores} cores: "
            "processes had to queue. Measurements in that minute are too long. "
            f"Wait until it is over, or {SIDE_BY_SIDE}."
        ),
    ),
    Advice(
        "gaps",
        "warning",
        lambda d: d.gaps.lost_share > LOST_SHARE,
        lambda d: (
            f"A process that never waits was kept from running for {percent(d.gaps.lost_share)} of the time: "
            f"{number(d.gaps.per_s)} gaps per second, the longest {seconds(d.gaps.longest_s)}. These gaps affect "
            "means, but hardly medians of short samples. Quote medians, and no single times."
        ),
    ),
    # limits
    Advice(
        "quota",
        "warning",
        lambda d: (d.machine.cpu_quota or math.inf) < _usable_cores(d),
        lambda d: (
            f"The container may use {number(d.machine.cpu_quota or 0.0)} of {_usable_cores(d)} cores. "
            "XLA sizes its thread pools by the cores, not by that limit. When the threads have used it up, all of them "
            "pause for the rest of the period, usually 0.1 s. "
            "Raise the limit, or confine the run to no more cores than it allows (taskset -c)."
        ),
    ),
    Advice(
        "confined",
        "info",
        lambda d: _usable_cores(d) < (d.environment.cores or 0),
        lambda d: (
            f"This process may use {_usable_cores(d)} of {d.environment.cores} cores. "
            "It moves between cores less, and XLA has fewer threads. "
            "Compare only with runs confined in the same way."
        ),
    ),
    Advice(
        "virtual-machine",
        "info",
        lambda d: d.environment.virtual_machine,
        lambda d: (
            "This is a virtual machine: clock rate, temperature and neighbours cannot be seen from inside. "
            "They may change from hour to hour. "
            f"Do not compare its times with times of another day; {SIDE_BY_SIDE}."
        ),
    ),
    # variation
    Advice(
        "unsteady",
        "warning",
        lambda d: d.spread and d.spread.relative_iqr > SPREAD,
        lambda d: (
            f"Times of the same piece of Python have quartiles {percent(d.spread.relative_iqr if d.spread else 0.0)} "
            "apart: the clock rate changes, or the core is shared. Two runs of the same code can differ this much. "
            f"Do not compare times of two runs; {SIDE_BY_SIDE}."
        ),
    ),
    Advice(
        "noise-floor",
        "warning",
        lambda d: (d.smallest_effect or 0.0) > EFFECT,
        lambda d: (
            f"Just now a slowdown below {percent(d.smallest_effect or 0.0)} is often missed, even side by side in "
            f"{COMPARED_ROUNDS} rounds. Look for bigger effects, take more rounds, or wait until the machine is quiet."
        ),
    ),
    # the processor
    Advice(
        "governor",
        "warning",
        lambda d: d.environment.governor not in (None, "performance"),
        lambda d: (
            f"The clock rate follows the load (governor: {d.environment.governor}). "
            "The first milliseconds of work run at a lower rate than the rest. "
            "Fix the rate while measuring: sudo cpupower frequency-set -g performance"
        ),
    ),
    Advice(
        "turbo",
        "info",
        lambda d: d.machine.is_turbo_on,
        lambda d: (
            "The processor raises its clock rate while it is cool and few cores work. "
            "Long runs and parallel ones are slower than short ones. "
            "For times that are to hold for weeks switch it off: as root, echo 0 to "
            "/sys/devices/system/cpu/cpufreq/boost, or 1 to /sys/devices/system/cpu/intel_pstate/no_turbo."
        ),
    ),
    Advice(
        "smt",
        "info",
        lambda d: d.machine.is_smt_on,
        lambda d: (
            "Two hardware threads share each core, and work on one slows the other down. "
            "Leave half of them idle, or confine the run to one per core (lscpu -e, taskset -c)."
        ),
    ),
    Advice(
        "small-pages",
        "info",
        lambda d: d.environment.huge_pages == "never",
        lambda d: (
            "Transparent huge pages are off: fresh memory costs a page fault for every 4 KiB. "
            "Calls that return big arrays pay that each time. "
            "As root, echo madvise to /sys/kernel/mm/transparent_hugepage/enabled."
        ),
    ),
    # clocks
    Advice(
        "clock",
        "warning",
        lambda d: max(d.clock.resolution_s, d.clock.reading_s) > CLOCK_S,
        lambda d: (
            f"The clock steps by {seconds(d.clock.resolution_s)} and costs {seconds(d.clock.reading_s)} a reading. "
            f"Short samples are inexact. Its source is {d.machine.clock_source or 'not known'}. On x86 the good one is "
            "tsc; the kernel's log says why another was chosen (dmesg)."
        ),
    ),
    Advice(
        "interpreted-clock",
        "warning",
        lambda d: d.compiled_clock.tier == "python",
        lambda d: (
            f"The clock inside compiled code runs in Python, at {seconds(d.compiled_clock.reading_s or 0.0)} a "
            f"reading: {'; '.join(d.compiled_clock.reasons)}. "
            "Functions of less than some 10 µs cannot be read with it. "
            "Install a C compiler (on Debian and Ubuntu: apt install gcc libc6-dev); it is used from the next run on."
        ),
    ),
    Advice(
        "no-compiled-clock",
        "warning",
        lambda d: d.compiled_clock.tier is None,
        lambda d: (
            f"There is no clock inside compiled code: {'; '.join(d.compiled_clock.reasons)}. "
            "Short functions are timed by a slope instead, which a busy machine disturbs; deadlines inside jit are not "
            "available."
        ),
    ),
)


def advise(d: Diagnosis) -> tuple[Remark, ...]:
    """Returns the disturbances, their effect on numbers, and remedies. Errors come first."""
    found = [Remark(each.code, each.severity, each.says(d)) for each in ADVICE if each.applies(d)]
    return tuple(sorted(found, key=lambda remark: ("error", "warning", "info").index(remark.severity)))
