"""Device time on NVIDIA: the sum of a call's kernels, as CUPTI times them on the GPU.

By `jax.experimental.mosaic.gpu.profiler.Cupti`, the timer that JAX brings. It is experimental and has changed often
(0.4.35, 0.5, 0.6, 0.7.2), so its signature is looked at first. Written from the source of jax 0.7.2 to 0.12.0.1 and
tried with jax 0.11.2 on an H100: `docs/verified/`.

Includes kernels only: no copies, no gaps; what ran side by side on several streams counts twice. The calls follow one
another on the same inputs, so that what fits into the L2 cache is found there.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from benchax.errors import NotMeasured
from benchax.measuring.timers.base import PreparedTimer, Subject

REGIME = "kernels, L2 warm"
ROUNDING_NS = 4
"""Smaller differences are not steps of the clock, but the rounding of its steps."""


def prepared(subject: Subject) -> PreparedTimer:
    """Raises `NotMeasured` with the reason where CUPTI cannot serve."""
    if subject.inputs.is_stateful:
        raise NotMeasured("it changes its arguments, and CUPTI's timer repeats the call on the same ones")
    if subject.donates:
        raise NotMeasured("it donates its arguments, and CUPTI's timer repeats the call on the same ones")
    if subject.program.kind not in ("plain", "jit", "compiled"):
        raise NotMeasured("CUPTI's timer of JAX takes jitted and compiled functions only")
    measure = _measure()

    seen_ns: set[int] = set()

    def take(iterations: int, count: int) -> list[int]:
        times_ns = _kernels(measure, subject, iterations * count)
        seen_ns.update(times_ns)
        return [sum(times_ns[i::count]) for i in range(count)]

    take(1, 1)  # what cannot be timed says so now
    return PreparedTimer(
        sample=lambda n: sum(take(1, n)),
        take=take,
        regime=REGIME,
        most_iterations=1,
        resolution_s=lambda: _step_s(seen_ns),
    )


def _step_s(seen_ns: set[int]) -> float | None:
    """The least difference of two readings: the clock of an H100 steps by 32 ns, give or take one."""
    steps = (after - before for before, after in pairwise(sorted(seen_ns)))
    return min((step for step in steps if step > ROUNDING_NS), default=0) / 1e9 or None


def _measure() -> Callable[..., Any]:
    """`Cupti.measure`, if it is there and takes what we give it."""
    try:
        # At this moment only: elsewhere it may not import at all, and it takes 0.2 s.
        made = importlib.import_module("jax.experimental.mosaic.gpu.profiler").Cupti
        known = {*inspect.signature(made).parameters, *inspect.signature(made.measure).parameters}
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise NotMeasured(f"this jax has no timer by CUPTI ({type(error).__name__}: {error})") from error
    if missing := {"finalize", "aggregate", "iterations"} - known:
        raise NotMeasured(f"the timer by CUPTI of this jax knows no {', '.join(sorted(missing))}; 0.7.2 or newer does")
    # finalize=True would end CUPTI for the whole process after the first measurement.
    return made(finalize=False).measure


def _kernels(measure: Callable[..., Any], subject: Subject, calls: int) -> list[int]:
    """Nanoseconds of each call's kernels."""
    args, kwargs = subject.inputs.args, subject.inputs.kwargs
    try:
        _, times_ms = measure(subject.program.call, aggregate=True, iterations=calls)(*args, **kwargs)
    except RuntimeError as error:  # no right to use CUPTI, another profiler, calls that ran different kernels
        raise NotMeasured(f"CUPTI: {(str(error).splitlines() or [''])[0]}") from error
    if times_ms is None:
        raise NotMeasured("it ran no kernel on the GPU")
    each_ms = times_ms if isinstance(times_ms, list) else [times_ms]
    if len(each_ms) != calls:
        raise NotMeasured(f"CUPTI told the times of {len(each_ms)} calls out of {calls}")
    return [round(ms * 1e6) for ms in each_ms]
